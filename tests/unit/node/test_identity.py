import os
from pathlib import Path

import pytest

from ryecore.errors import ConfigError, MetadataError, SigningError, StateError
from ryecore.lillux.keys import PublicKey, open_envelope, seal_envelope
from ryecore.node.database import open_node_database
from ryecore.node.identity import NodeSettings, find_node_folder, load_node, make_node


def test_a_node_keeps_its_keys_in_files_of_its_own(tmp_path: Path) -> None:
    made = make_node(tmp_path / "node")

    node = load_node(tmp_path / "node")

    assert node.fingerprint == made.fingerprint
    assert PublicKey.from_pem(node.to_document().node_key) == made.key.public
    assert node.settings == NodeSettings()
    envelope = seal_envelope(made.box_key.public, {"HF_TOKEN": "x"})
    assert open_envelope(node.box_key, envelope) == {"HF_TOKEN": "x"}
    for path in (tmp_path / "node").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_node_is_never_overwritten(tmp_path: Path) -> None:
    made = make_node(tmp_path)

    with pytest.raises(ConfigError, match="already"):
        make_node(tmp_path)

    assert load_node(tmp_path).fingerprint == made.fingerprint


def test_a_folder_without_a_node_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rye node init"):
        load_node(tmp_path)


@pytest.mark.parametrize("name", ["key.pem", "box_key.pem"])
def test_keys_that_others_can_read_are_refused(tmp_path: Path, name: str) -> None:
    make_node(tmp_path)
    (tmp_path / name).chmod(0o644)

    with pytest.raises(SigningError, match="chmod 600"):
        load_node(tmp_path)


def test_a_wrong_setting_is_named_with_its_line(tmp_path: Path) -> None:
    make_node(tmp_path)
    (tmp_path / "node.yaml").write_text("host: 127.0.0.1\nprot: 80\n")

    with pytest.raises(ConfigError, match=r"node.yaml, line 2: prot .*'port'"):
        load_node(tmp_path)


@pytest.mark.parametrize("name", ["key.pem", "box_key.pem"])
@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\nMC4CA", b"\0" * 99])
def test_a_damaged_key_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    make_node(tmp_path)
    (tmp_path / name).write_bytes(content)

    with pytest.raises(SigningError, match=name) as refused:
        load_node(tmp_path)
    assert refused.value.next_step.startswith("Put it back from a copy")


@pytest.mark.parametrize("content", [b"- a", b"port: [", b"\xff\0", b"port: 1\nport: 2"])
def test_a_broken_file_of_settings_is_to_be_corrected_and_not_signed(
    tmp_path: Path, content: bytes
) -> None:
    make_node(tmp_path)
    (tmp_path / "node.yaml").write_bytes(content)

    with pytest.raises(MetadataError, match=r"node\.yaml") as refused:
        load_node(tmp_path)
    assert refused.value.next_step == "Correct the file."


@pytest.mark.parametrize("name", ["callers", "data"])
def test_what_is_in_the_place_of_a_folder_is_named(tmp_path: Path, name: str) -> None:
    make_node(tmp_path)
    (tmp_path / name).rmdir()
    (tmp_path / name).write_text("x")

    with pytest.raises(ConfigError, match=f"{name} isn't a folder that you may use"):
        load_node(tmp_path)


@pytest.mark.skipif(os.getuid() == 0, reason="root may enter every folder")
def test_another_user_s_node_is_refused(tmp_path: Path) -> None:
    make_node(tmp_path / "node")
    (tmp_path / "node").chmod(0)
    try:
        with pytest.raises(ConfigError, match="may use"):
            load_node(tmp_path / "node")
    finally:
        (tmp_path / "node").chmod(0o700)


def test_a_damaged_database_is_refused_with_what_to_do(tmp_path: Path) -> None:
    make_node(tmp_path)
    (tmp_path / "node.db").write_bytes(b"not a database" * 500)

    with pytest.raises(StateError, match=r"node\.db") as refused:
        open_node_database(tmp_path)
    assert "move it away" in refused.value.next_step
    assert "rye threads" not in refused.value.next_step


def test_the_folder_is_named_or_in_user_space() -> None:
    assert find_node_folder("/a", {"RYE_NODE_DIR": "/b"}) == Path("/a")
    assert find_node_folder(None, {"RYE_NODE_DIR": "/b", "HOME": "/h"}) == Path("/b")
    assert find_node_folder(None, {"HOME": "/h"}) == Path("/h/.ai/node")
