import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import (
    BadSignature,
    ContentChanged,
    IntegrityError,
    ItemNotFound,
    MalformedSignature,
    UnsignedItem,
    UntrustedKey,
)
from ryecore.items.paths import source_at
from ryecore.items.refs import ItemRef
from ryecore.items.signature import CommentForm, make_signature, split_content
from ryecore.items.spaces import ItemSource, Spaces, built_in_space
from ryecore.items.trust import TrustStore
from ryecore.items.verification import SignedItem, VerifiedItem, Verifier, verify_item
from ryecore.lillux.keys import SigningKey
from ryecore.lillux.witness import Evidence
from tests.unit.items.helpers import PYTHON_TOOL, change, follow, verify, with_fixtures
from tests.workspace import Workspace

FILES = {
    "plain.py": PYTHON_TOOL,
    "empty.py": b"",
    "unended.py": b"x = 1",
    "dos.py": b"x = 1\r\ny = 2\r\n",
    "script.sh": b"#!/bin/sh\necho hello\n",
    "dos.sh": b"#!/bin/sh\r\necho\r\n",
    "only.sh": b"#!/bin/sh",
    "tool.js": b"export const __version__ = '1';\n",
    "runtime.yaml": b"version: '1'\n",
    "data.json": b'{"a": 1}',
    "native.so": b"\x7fELF\x00\xff\n",
    "page.rb": b"puts 1\n",
}
FILE_TYPES = {".rb": CommentForm.of("#")}


def write(workspace: Workspace, name: str, content: bytes | None = None) -> Path:
    path = workspace.write(
        f"tools/acme/{name}", FILES[name] if content is None else content, sign=False
    )
    workspace.sign(path, file_types=FILE_TYPES)
    return path


def verifier(spaces: Spaces) -> Verifier:
    return Verifier(TrustStore(spaces), file_types=lambda: FILE_TYPES)


def check(spaces: Spaces, path: Path) -> VerifiedItem:
    return verifier(spaces).verify(source_at(path, spaces))


@pytest.mark.parametrize("name", FILES)
def test_a_signed_file_verifies_and_brings_its_own_bytes(
    workspace: Workspace, spaces: Spaces, name: str
) -> None:
    path = write(workspace, name)
    item = check(spaces, path)
    assert item.content == path.read_bytes()
    assert item.fingerprint == workspace.key.public.fingerprint
    assert item.is_verified
    path.write_bytes(b"changed afterwards")
    assert item.content != path.read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_every_single_byte_change_is_refused(
    workspace: Workspace, spaces: Spaces, name: str
) -> None:
    path = write(workspace, name)
    sidecar = path.with_name(path.name + ".sig")
    for file in (path, sidecar) if sidecar.exists() else (path,):
        content = file.read_bytes()
        for at in range(len(content)):
            for mask in (0x01, 0x07, 0x20, 0x80):  # 0x07 makes a line feed a carriage return
                file.write_bytes(change(content, at, lambda byte, mask=mask: byte ^ mask))
                with pytest.raises(IntegrityError):
                    check(spaces, path)
        file.write_bytes(content)
    assert check(spaces, path).is_verified


@with_fixtures
@given(data=st.data(), name=st.sampled_from(sorted(FILES)))
def test_a_byte_that_is_changed_added_or_lost_is_refused(
    workspace: Workspace, spaces: Spaces, data: st.DataObject, name: str
) -> None:
    path = write(workspace, name)
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    lost = data.draw(st.integers(0, 1))
    new = data.draw(st.binary(max_size=1 if lost else 3))
    changed = content[:at] + new + content[at + lost :]
    path.write_bytes(changed)
    try:
        item = check(spaces, path)
    except IntegrityError:
        return
    # The one thing that is not content is how the signature line ends.
    form = None if name in ("data.json", "native.so") else CommentForm.of("#")
    if name == "tool.js":
        form = CommentForm.of("//")
    parts = (split_content(changed, form), split_content(content, form))
    assert parts[0].before + parts[0].after == parts[1].before + parts[1].after
    assert item.content == changed


def test_an_unsigned_file_is_refused_and_the_next_step_signs_it(
    workspace: Workspace, spaces: Spaces
) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL, sign=False)
    with pytest.raises(UnsignedItem, match="is not signed") as refused:
        verify(spaces, path)
    assert refused.value.path == path
    assert refused.value.item_id == "tool:acme/x"
    assert refused.value.next_step.endswith("rye sign tool:acme/x")
    follow(workspace, refused.value.next_step)
    assert verify(spaces, path).is_verified


def test_a_changed_file_is_refused_and_the_next_step_signs_it(
    workspace: Workspace, spaces: Spaces
) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL)
    path.write_bytes(path.read_bytes() + b"# more\n")
    with pytest.raises(ContentChanged, match="was changed after the key") as refused:
        verify(spaces, path)
    assert workspace.key.public.fingerprint in str(refused.value)
    follow(workspace, refused.value.next_step)
    assert verify(spaces, path).is_verified


def test_in_user_space_the_next_step_says_so(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL, space="user", sign=False)
    with pytest.raises(UnsignedItem) as refused:
        verify(spaces, path)
    assert refused.value.next_step.endswith("rye sign tool:acme/x --user")
    follow(workspace, refused.value.next_step)
    assert verify(spaces, path).is_verified


@pytest.mark.parametrize("name", ["x.so", "x y.so", "a.b.py", "Makefile", "__init__.py"])
def test_the_next_step_signs_the_very_file_that_is_meant(
    workspace: Workspace, spaces: Spaces, name: str
) -> None:
    workspace.write("tools/acme/x.py", PYTHON_TOOL)  # another file of one of the stems
    path = workspace.write(f"tools/acme/{name}", b"\x00", sign=False)
    with pytest.raises(UnsignedItem) as refused:
        verify(spaces, path)
    follow(workspace, refused.value.next_step)
    assert verify(spaces, path).is_verified


def test_in_a_bundle_the_next_step_is_to_reinstall_it(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL, space="system", sign=False)
    with pytest.raises(UnsignedItem, match="reinstall the package"):
        verify(spaces, path)


@pytest.mark.parametrize("text", [" ", " # ok", "=", "|", "|a", "|a@b c", "\t", " -->", "0"])
def test_text_behind_the_signature_is_refused(
    workspace: Workspace, spaces: Spaces, text: str
) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL)
    line, end, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(line + text.encode() + end + rest)
    with pytest.raises(MalformedSignature, match="something was added to it") as refused:
        verify(spaces, path)
    assert refused.value.path == path
    follow(workspace, refused.value.next_step)
    assert verify(spaces, path).is_verified


def test_a_directives_line_needs_its_closing_mark(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.write("directives/acme/x.md", b"# Title\n\nprose\n")
    assert verify(spaces, path).is_verified
    content = path.read_bytes()
    for end in (b"\n", b" --\n", b" --> x\n", b"-->\n"):
        path.write_bytes(content.replace(b" -->\n", end, 1))
        with pytest.raises(MalformedSignature):
            verify(spaces, path)


@pytest.mark.parametrize("part", [b"# Title", b"prose", b"<directive", b"---", b"last words"])
def test_the_whole_directive_is_covered(workspace: Workspace, spaces: Spaces, part: bytes) -> None:
    content = b"---\na: 1\n---\n# Title\n\nprose\n<directive name='x'/>\n\nlast words\n"
    path = workspace.write("directives/acme/x.md", content)
    assert verify(spaces, path).is_verified
    path.write_bytes(path.read_bytes().replace(part, part[:-1] + b"!"))
    with pytest.raises(ContentChanged):
        verify(spaces, path)


def test_the_shebang_is_covered(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.write("tools/acme/x.sh", b"#!/bin/sh\necho\n")
    path.write_bytes(path.read_bytes().replace(b"#!/bin/sh", b"#!/bin/evil"))
    with pytest.raises(ContentChanged):
        verify(spaces, path)


def moved(workspace: Workspace, path: Path) -> Path:
    return path.rename(workspace.write("tools/other/y.py", b"", sign=False).with_name(path.name))


def renamed(workspace: Workspace, path: Path) -> Path:
    return path.rename(path.with_name("y.py"))


def renamed_in_case(workspace: Workspace, path: Path) -> Path:
    return path.rename(path.with_name("X.py"))


def of_another_kind(workspace: Workspace, path: Path) -> Path:
    to = workspace.path("config/acme/x.py")
    to.parent.mkdir(parents=True)
    return path.rename(to)


def of_another_extension(workspace: Workspace, path: Path) -> Path:
    return path.rename(path.with_suffix(".sh"))


def linked(workspace: Workspace, path: Path) -> Path:
    path.with_name("y.py").symlink_to(path.name)
    return path.with_name("y.py")


def back_dated(workspace: Workspace, path: Path) -> Path:
    content = path.read_bytes()
    year = content[content.index(b"rye:signed:") + 11 :][:4]
    path.write_bytes(content.replace(b"rye:signed:" + year, b"rye:signed:1999", 1))
    return path


def given_a_provenance(workspace: Workspace, path: Path) -> Path:
    line, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(line + b"|hub@ann\n" + rest)
    return path


def with_another_provenance(workspace: Workspace, path: Path) -> Path:
    parts = split_content(path.read_bytes(), CommentForm.of("#"))
    made = make_signature(
        parts.content_hash, "tool", "acme/x.py", workspace.key, "2026-01-01T00:00:00Z", "hub@ann"
    )
    path.write_bytes(f"# {made.payload}\n".replace("@ann", "@eve").encode() + parts.after)
    return path


def forged(workspace: Workspace, path: Path) -> Path:
    parts = split_content(path.read_bytes(), CommentForm.of("#"))
    made = make_signature(
        parts.content_hash, "tool", "acme/x.py", SigningKey.generate(), "2026-01-01T00:00:00Z"
    )
    theirs = made.payload.replace(made.fingerprint, workspace.key.public.fingerprint)
    path.write_bytes(f"# {theirs}\n".encode() + parts.after)
    return path


@pytest.mark.parametrize(
    "how",
    [
        moved,
        renamed,
        renamed_in_case,
        of_another_kind,
        of_another_extension,
        linked,
        back_dated,
        given_a_provenance,
        with_another_provenance,
        forged,
    ],
    ids=lambda how: how.__name__,
)
def test_a_signature_holds_for_one_place_and_time_alone(
    workspace: Workspace, spaces: Spaces, how: Callable[[Workspace, Path], Path]
) -> None:
    path = how(workspace, workspace.write("tools/acme/x.py", PYTHON_TOOL))
    with pytest.raises(BadSignature, match="moved, renamed or back-dated") as refused:
        verify(spaces, path)
    assert refused.value.path == path
    assert workspace.key.public.fingerprint in str(refused.value)
    follow(workspace, refused.value.next_step)
    assert verify(spaces, path).is_verified


def test_a_copy_in_another_space_is_the_same_item(workspace: Workspace, spaces: Spaces) -> None:
    """An identity is kind and path; which key counts is asked for each space."""
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL)
    copy = workspace.write("tools/acme/x.py", path.read_bytes(), space="user", sign=False)
    assert verify(spaces, copy).is_verified


def test_a_signed_provenance_verifies(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL)
    parts = split_content(path.read_bytes(), CommentForm.of("#"))
    made = make_signature(
        parts.content_hash, "tool", "acme/x.py", workspace.key, "2026-01-01T00:00:00Z", "hub@ann"
    )
    path.write_bytes(f"# {made.payload}\n".encode() + parts.after)
    assert verify(spaces, path).is_verified


def test_a_file_outside_every_space_is_refused(workspace: Workspace, spaces: Spaces) -> None:
    elsewhere = workspace.root / "elsewhere/.ai/tools/x.py"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(b"")
    with pytest.raises(ItemNotFound, match="doesn't stand in a space"):
        verify(spaces, elsewhere)
    with pytest.raises(ItemNotFound, match="below a kind's folder"):
        verify(spaces, workspace.project / "x.py")


def test_only_a_plain_file_is_read(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.path("tools/acme/x.py")
    path.parent.mkdir(parents=True)
    for make in (path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to(path.name)):
        make()
        with pytest.raises(IntegrityError, match="can't be read") as refused:
            verify(spaces, path)
        assert refused.value.path == path
        assert refused.value.item_id == "tool:acme/x"
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize("made", ["huge", "folder", "fifo", "circle", "binary", "two lines"])
def test_a_sidecar_that_is_none_is_refused(workspace: Workspace, spaces: Spaces, made: str) -> None:
    path = workspace.write("tools/acme/x.json", b"{}")
    sidecar = path.with_name("x.json.sig")
    payload = sidecar.read_bytes()
    sidecar.unlink()
    match made:
        case "huge":
            sidecar.write_bytes(payload * 1000)
        case "folder":
            sidecar.mkdir()
        case "fifo":
            os.mkfifo(sidecar)
        case "circle":
            sidecar.symlink_to(sidecar.name)
        case "binary":
            sidecar.write_bytes(b"\xff\xfe\x00")
        case "two lines":
            sidecar.write_bytes(payload + payload)
    with pytest.raises(MalformedSignature) as refused:
        verify(spaces, path)
    assert "rye sign tool:acme/x" in refused.value.next_step


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_sidecar_is_one_line_however_it_ends(
    workspace: Workspace, spaces: Spaces, end: bytes
) -> None:
    path = workspace.write("tools/acme/x.json", b"{}")
    sidecar = path.with_name("x.json.sig")
    sidecar.write_bytes(sidecar.read_bytes().strip() + end)
    assert verify(spaces, path).is_verified


def test_what_was_read_is_told_whether_or_not_it_verifies(
    workspace: Workspace, spaces: Spaces
) -> None:
    path = workspace.write("tools/acme/x.json", b"{}")
    for change_it in (
        lambda: path.write_bytes(b"[]"),
        lambda: path.with_name("x.json.sig").unlink(),
        lambda: (
            workspace.path("config/keys/trusted", "user")
            .joinpath(f"{workspace.key.public.fingerprint}.toml")
            .unlink()
        ),
    ):
        evidence = Evidence()
        verifier(spaces).verify(source_at(path, spaces), evidence)
        witness = evidence.witness()
        assert witness.holds()
        change_it()
        assert not witness.holds()
        workspace.sign(path)
        workspace.keys.trust(workspace.key.public, "")


def test_a_missing_sidecar_is_noticed_when_it_comes(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.write("tools/acme/x.json", b"{}", sign=False)
    evidence = Evidence()
    with pytest.raises(UnsignedItem):
        verifier(spaces).verify(source_at(path, spaces), evidence)
    witness = evidence.witness()
    assert witness.holds()
    workspace.sign(path)
    assert not witness.holds()


def test_trust_is_asked_again_each_time(workspace: Workspace, spaces: Spaces) -> None:
    path, keep = workspace.write("tools/acme/x.py", PYTHON_TOOL), verifier(spaces)
    source = source_at(path, spaces)
    assert keep.verify(source).is_verified
    workspace.keys.trust(workspace.key.public, "", revoked=True)
    with pytest.raises(UntrustedKey, match="was revoked"):
        keep.verify(source)


def test_what_is_remembered_is_of_no_use_at_another_place(
    workspace: Workspace, spaces: Spaces
) -> None:
    path, keep = workspace.write("tools/acme/x.py", PYTHON_TOOL), verifier(spaces)
    keep.verify(source_at(path, spaces))
    copy = Path(shutil.copy(path, path.with_name("y.py")))
    with pytest.raises(BadSignature):
        keep.verify(source_at(copy, spaces))


def test_content_never_stands_in_a_repr(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.write("tools/acme/x.py", b"SECRET = 1\n")
    item = verify(spaces, path)
    assert "SECRET" not in repr(item)
    signed = SignedItem(item.source, item.content, item.integrity, None)  # type: ignore[arg-type]
    assert "SECRET" not in repr(signed)


def test_the_built_in_bundle_verifies_as_a_whole(spaces: Spaces) -> None:
    built_in = built_in_space()
    trust = TrustStore(Spaces(spaces.project, spaces.user, (built_in,)))
    files = [
        path
        for path in built_in.root.rglob("*")
        if path.is_file() and path.suffix != ".sig" and "__pycache__" not in path.parts
    ]
    assert len(files) > 10
    for path in files:
        assert verify_item(path, trust).is_verified


def test_the_ref_of_a_source_is_part_of_what_is_signed(
    workspace: Workspace, spaces: Spaces
) -> None:
    """A source that was made by hand can't pass one file off as another."""
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL)
    lie = ItemSource(ItemRef("tool", "acme/y"), path, spaces.project, "acme/y.py")
    with pytest.raises(BadSignature):
        verifier(spaces).verify(lie)
