import os
import subprocess
import sys
from pathlib import Path

import pytest

from ryecore.errors import ContentChanged, UntrustedKey
from ryecore.items.seal import main, seal_bundle
from ryecore.items.spaces import Space, Spaces
from ryecore.lillux.keys import PublicKey
from tests.unit.items.helpers import verify
from tests.workspace import Workspace

FILES = {
    "tools/acme/x.py": b"print()\n",
    "tools/acme/__init__.py": b"",
    "tools/acme/lib/native.so": b"\x7fELF",
    "tools/acme/data.json": b"{}",
    "directives/acme/d.md": b"# Title\n",
    "knowledge/k.md": b"text\n",
    "config/agent/agent.yaml": b"a: 1\n",
}


@pytest.fixture
def bundle(workspace: Workspace) -> Space:
    for name, content in FILES.items():
        workspace.write(name, content, space="system", sign=False)
    return Space("system", workspace.path("", "system"), "ryecore")


def as_built_in(spaces: Spaces, bundle: Space) -> Spaces:
    return Spaces(spaces.project, spaces.user, (bundle,))


def test_a_sealed_bundle_verifies_as_a_whole(spaces: Spaces, bundle: Space) -> None:
    key, signed = seal_bundle(bundle.root, "acme")
    assert signed == len(FILES)
    spaces = as_built_in(spaces, bundle)
    for name in FILES:
        assert verify(spaces, bundle.root / name).fingerprint == key.fingerprint


def test_what_changes_after_the_seal_is_refused(spaces: Spaces, bundle: Space) -> None:
    seal_bundle(bundle.root, "acme")
    path = bundle.root / "tools/acme/x.py"
    path.write_bytes(path.read_bytes() + b"#\n")
    with pytest.raises(ContentChanged):
        verify(as_built_in(spaces, bundle), path)


def test_the_private_key_is_nowhere(workspace: Workspace, bundle: Space) -> None:
    before = {path for path in workspace.root.rglob("*") if path.is_file()}
    key, _ = seal_bundle(bundle.root, "acme")
    made = {path for path in workspace.root.rglob("*") if path.is_file()} - before
    assert made == {
        bundle.root / f"config/keys/trusted/{key.fingerprint}.toml",
        bundle.root / "tools/acme/data.json.sig",
        bundle.root / "tools/acme/lib/native.so.sig",
    }
    for path in bundle.root.rglob("*"):
        assert path.is_dir() or b"PRIVATE" not in path.read_bytes()


def test_each_seal_has_a_key_of_its_own_and_ends_the_one_before(
    spaces: Spaces, bundle: Space
) -> None:
    first, _ = seal_bundle(bundle.root, "acme")
    old = (bundle.root / "tools/acme/x.py").read_bytes()
    second, signed = seal_bundle(bundle.root, "acme")
    assert first != second
    assert signed == len(FILES)
    keys = bundle.root / "config/keys/trusted"
    assert os.listdir(keys) == [f"{second.fingerprint}.toml"]
    (bundle.root / "tools/acme/x.py").write_bytes(old)
    with pytest.raises(UntrustedKey):
        verify(as_built_in(spaces, bundle), bundle.root / "tools/acme/x.py")


def test_a_sealed_bundle_of_a_third_party_still_needs_a_voucher(
    workspace: Workspace, spaces: Spaces, bundle: Space
) -> None:
    key, _ = seal_bundle(bundle.root, "acme")
    path = bundle.root / "tools/acme/x.py"
    with pytest.raises(UntrustedKey):
        verify(spaces, path)
    assert verify(spaces, path, key).is_verified
    workspace.keys.trust(key, "acme", space=spaces.system[1])
    assert verify(spaces, path).is_verified


def test_a_bundle_with_nothing_but_old_keys_or_sidecars_is_sealed(
    workspace: Workspace, bundle: Space
) -> None:
    workspace.write("config/keys/note.txt", b"x", space="system", sign=False)
    for name in FILES:
        (bundle.root / name).unlink()
    workspace.write("tools/gone.json.sig", b"x", space="system", sign=False)
    workspace.write("directives/Makefile", b"x", space="system", sign=False)
    _, signed = seal_bundle(bundle.root, "acme")
    assert signed == 1, "a file without an extension is a file"


def test_the_command_seals_what_it_is_given(
    workspace: Workspace, spaces: Spaces, bundle: Space
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ryecore.items.seal", str(bundle.root.parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{len(FILES)} files sealed with the key" in done.stdout
    assert done.stderr == ""
    assert verify(as_built_in(spaces, bundle), bundle.root / "tools/acme/x.py").is_verified


def test_the_command_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_the_command_passes_over_a_folder_without_items(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    assert "no .ai folder" in capsys.readouterr().out
    assert os.listdir(tmp_path) == []


def test_the_command_fails_with_the_reason(
    workspace: Workspace, bundle: Space, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.write("tools/bom.py", b"\xef\xbb\xbf", space="system", sign=False)
    assert main([str(bundle.root.parent)]) == 1
    assert "byte order mark" in capsys.readouterr().err


def test_the_owner_stands_in_the_key_file(bundle: Space) -> None:
    key, _ = seal_bundle(bundle.root, 'the "owner"')
    assert isinstance(key, PublicKey)
    text = (bundle.root / f"config/keys/trusted/{key.fingerprint}.toml").read_text()
    assert 'owner = "the \\"owner\\""' in text
