"""This repository's own `.ai`: the tools that its maintainers use on it."""

import tomllib
from pathlib import Path

import pytest

from ryecore import SyncRye
from ryecore.errors import UntrustedKey
from tests.interpreter import PYTHON

ROOT = Path(__file__).parents[2]


def own_key() -> str:
    (path,) = (ROOT / ".ai/config/keys/trusted").glob("*.toml")
    return str(tomllib.loads(path.read_text())["public_key"]["pem"])


def open_here(tmp_path: Path, trusted_keys: list[str]) -> SyncRye:
    environ = {"PATH": f"{Path(PYTHON).parent}:/usr/bin:/bin"}
    return SyncRye.open(ROOT, user_space=tmp_path, environ=environ, trusted_keys=trusted_keys)


def test_no_module_of_this_house_has_grown_too_long(tmp_path: Path) -> None:
    with open_here(tmp_path, [own_key()]) as rye:
        done = rye.execute("tool:house/modules")
    assert done.success, done.data


def test_this_repository_can_not_vouch_for_itself(tmp_path: Path) -> None:
    with open_here(tmp_path, []) as rye, pytest.raises(UntrustedKey, match="rye keys trust"):
        rye.execute("tool:house/modules")
