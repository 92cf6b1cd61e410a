"""Records that the run key attests."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore import SigningKey
from ryecore.errors import StateError
from ryecore.state.records import canonical_json, holds, load_run_key, sign_record

KEY = SigningKey.generate()
RECORDS = st.dictionaries(
    st.text(max_size=5).filter(lambda name: name != "_signature"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@given(RECORDS)
def test_a_signed_record_holds_after_any_way_of_writing_it(record: dict[str, object]) -> None:
    signed = sign_record("state", record, KEY)
    again = json.loads(json.dumps(signed, indent=3, ensure_ascii=False))
    assert holds("state", again, KEY.public)
    assert not holds("other", again, KEY.public)
    assert not holds("state", again, SigningKey.generate().public)
    assert not holds("state", {**again, "more": 1}, KEY.public)


@given(RECORDS, st.data())
def test_any_altered_byte_of_the_signature_is_noticed(
    record: dict[str, object], data: st.DataObject
) -> None:
    line = str(sign_record("state", record, KEY)["_signature"])
    at = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.sampled_from("abf059:_-").filter(lambda char: char != line[at]))
    altered = line[:at] + other + line[at + 1 :]
    assert not holds("state", {**record, "_signature": altered}, KEY.public)


def test_a_signature_has_one_spelling() -> None:
    """The last of its characters holds four bits that say nothing."""
    line = str(sign_record("state", {"a": 1}, KEY)["_signature"])
    *front, value, fingerprint = line.split(":")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = value[:-1] + letters[letters.index(value[-1]) + 1]
    for altered in (":".join((*front, other, fingerprint)), line + "|acme@somebody"):
        assert not holds("state", {"a": 1, "_signature": altered}, KEY.public)


@pytest.mark.parametrize("line", [None, "", 7, "rye:signed", "rye:signed:a:b:c:d:e:f", ["x"]])
def test_what_is_no_signature_does_not_hold(line: object) -> None:
    assert not holds("state", {"a": 1, "_signature": line}, KEY.public)


def test_a_signature_with_half_a_character_does_not_hold() -> None:
    parts = str(sign_record("state", {"a": 1}, KEY)["_signature"]).split(":")
    line = ":".join((*parts[:2], "\ud800", *parts[3:]))
    assert not holds("state", {"a": 1, "_signature": line}, KEY.public)


def test_the_canonical_form_is_fixed() -> None:
    assert canonical_json({"b": [1, None], "a": "ü"}) == b'{"a":"\\u00fc","b":[1,null]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def test_the_run_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    key = load_run_key(tmp_path / ".ai")
    path = tmp_path / ".ai" / "state" / "keys" / "run_key.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_run_key(tmp_path / ".ai") == key
    assert [entry.name for entry in path.parent.iterdir()] == ["run_key.pem"]


def test_processes_that_make_the_run_key_at_once_agree(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from ryecore.state.records import load_run_key\n"
        "sys.stdin.readline()\n"
        "print(load_run_key(Path(sys.argv[1])).public.fingerprint)\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    said = {one.communicate("go\n", timeout=60)[0].strip() for one in running}
    assert said == {load_run_key(tmp_path).public.fingerprint}


def test_a_run_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    load_run_key(tmp_path)
    path = tmp_path / "state" / "keys" / "run_key.pem"
    path.chmod(0o644)
    with pytest.raises(StateError, match="chmod 600"):
        load_run_key(tmp_path)


def test_a_broken_run_key_is_said(tmp_path: Path) -> None:
    load_run_key(tmp_path)
    (tmp_path / "state" / "keys" / "run_key.pem").write_text("nothing")
    with pytest.raises(StateError, match=r"isn't a run key.*Move it away"):
        load_run_key(tmp_path)


@pytest.mark.parametrize("name", ["run_key.pem", "adopted/of-another.pem"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_key_that_is_no_plain_file_is_not_waited_for(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    load_run_key(tmp_path)
    path = tmp_path / "state/keys" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(StateError, match=rf"{path} .*isn't a plain file"):
        load_run_key(tmp_path)


def test_a_broken_adopted_key_is_told_from_the_run_key(tmp_path: Path) -> None:
    load_run_key(tmp_path)
    path = tmp_path / "state/keys/adopted/of-another.pem"
    path.parent.mkdir()
    path.write_text("nothing")
    with pytest.raises(StateError, match=rf"adopted key {path} can't be read.*threads adopt"):
        load_run_key(tmp_path)


def test_a_user_space_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"can't be made or read.*USER_SPACE"):
        load_run_key(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]
