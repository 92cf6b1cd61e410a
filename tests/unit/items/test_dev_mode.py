"""Dev mode, through `Rye.open`: what it lets pass, and what it never does."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from ryecore.errors import (
    ContentChanged,
    IntegrityError,
    InvalidItemId,
    ItemNotFound,
    UnsignedItem,
)
from ryecore.items.spaces import built_in_space
from ryecore.items.verification import UNVERIFIED, VerifiedItem
from ryecore.lillux.keys import SigningKey
from tests.unit.items.helpers import PYTHON_TOOL
from tests.workspace import Workspace


def dev(workspace: Workspace, value: str | None = "1") -> Callable[[str], VerifiedItem]:
    workspace.environ |= {} if value is None else {"RYE_DEV_MODE": value}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return workspace.open().verify


def unsigned(workspace: Workspace) -> Path:
    return workspace.write("tools/acme/x.py", PYTHON_TOOL, sign=False)


def changed(workspace: Workspace) -> Path:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL)
    path.write_bytes(path.read_bytes() + b"#\n")
    return path


def by_a_stranger(workspace: Workspace) -> Path:
    return workspace.write("tools/acme/x.py", PYTHON_TOOL, key=SigningKey.generate())


def malformed(workspace: Workspace) -> Path:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL)
    path.write_bytes(path.read_bytes().replace(b"\n", b" #\n", 1))
    return path


@pytest.mark.parametrize("make", [unsigned, changed, by_a_stranger, malformed])
@pytest.mark.parametrize("space", ["project", "user"])
def test_dev_mode_warns_and_marks_what_it_lets_pass(
    workspace: Workspace, make: Callable[[Workspace], Path], space: str
) -> None:
    path = make(workspace)
    if space == "user":
        (workspace.user / ".ai/tools/acme").mkdir(parents=True)
        path = path.rename(workspace.path("tools/acme/x.py", "user"))
    verify_ref = dev(workspace)
    with pytest.warns(UserWarning, match="RYE_DEV_MODE lets this pass"):
        item = verify_ref("tool:acme/x")
    assert item.integrity == UNVERIFIED
    assert not item.is_verified
    assert item.fingerprint is None
    assert item.content == path.read_bytes()
    assert item.source.path == path


def test_dev_mode_leaves_what_verifies_as_it_is(workspace: Workspace) -> None:
    workspace.write("tools/acme/x.py", PYTHON_TOOL)
    assert dev(workspace)("tool:acme/x").is_verified


def test_opening_in_dev_mode_warns(workspace: Workspace) -> None:
    workspace.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="what runs is not verified"):
        workspace.open()


@pytest.mark.parametrize(
    "value", [None, "", "0", "2", "01", "1 ", " 1", "1\n", "１", "true", "True", "yes", "on", "11"]
)
def test_nothing_but_exactly_1_is_dev_mode(workspace: Workspace, value: str | None) -> None:
    unsigned(workspace)
    workspace.environ |= {} if value is None else {"RYE_DEV_MODE": value}
    with pytest.raises(UnsignedItem):
        workspace.open().verify("tool:acme/x")


def test_dev_mode_is_read_from_the_environ_that_was_passed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsigned(workspace)
    monkeypatch.setenv("RYE_DEV_MODE", "1")
    with pytest.raises(UnsignedItem):
        workspace.open().verify("tool:acme/x")


def test_dev_mode_is_never_for_a_third_party_bundle(workspace: Workspace) -> None:
    workspace.write("tools/acme/x.py", PYTHON_TOOL, space="system", sign=False)
    with pytest.raises(UnsignedItem):
        dev(workspace)("tool:acme/x")


def test_dev_mode_is_never_for_the_built_in_bundle(workspace: Workspace) -> None:
    bundle = workspace.root / "copy"
    shutil.copytree(built_in_space().root, bundle / ".ai")
    tool = bundle / ".ai/tools/rye/bash.py"
    tool.write_bytes(tool.read_bytes() + b"#\n")
    built_in = type(built_in_space())("system", bundle / ".ai", "ryecore")
    workspace.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        rye = workspace.open(system_spaces=[built_in])
    with pytest.raises(ContentChanged):
        rye.verify("tool:rye/bash")


@pytest.mark.parametrize("item_id", ["../acme/x", "acme/../acme/x", "/etc/passwd", "acme\\x", ""])
def test_dev_mode_is_never_for_a_bad_id(workspace: Workspace, item_id: str) -> None:
    unsigned(workspace)
    with pytest.raises((InvalidItemId, ItemNotFound)):
        dev(workspace)(f"tool:{item_id}")


def test_dev_mode_is_never_for_a_link_out_of_the_space(workspace: Workspace) -> None:
    path = unsigned(workspace)
    outside = path.rename(workspace.root / "x.py")
    path.symlink_to(outside)
    with pytest.raises(InvalidItemId):
        dev(workspace)("tool:acme/x")


def test_dev_mode_cannot_read_what_cannot_be_read(workspace: Workspace) -> None:
    workspace.path("tools/acme/x.py").mkdir(parents=True)
    with pytest.raises(IntegrityError, match="can't be read"):
        dev(workspace)("tool:acme/x")
