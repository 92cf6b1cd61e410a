"""How a Rye was opened, as it goes to another process."""

import inspect
import json
from pathlib import Path
from typing import Any, ForwardRef

import pytest
from attrs import asdict

from ryecore import CallContext, ItemRef, Rye
from ryecore.actions.payload import Payload
from ryecore.actions.settings import OpenOptions, Settings, check_options, check_warm_memory
from ryecore.actions.targets.ray_calls import RayPayload, RayThread
from ryecore.errors import ConfigError
from ryecore.runs.request import RunRequest

# What can't travel, or is the other process's own; only the first process recovers what died.
INJECTED = {"environ", "approve", "agent", "recover", "observer", "ask", "authorize"}


def test_every_option_that_can_travel_does() -> None:
    options = set(inspect.signature(Rye.open).parameters) - INJECTED - {"project_path"}
    settings = Settings("/p", "/u", (), "safe", (), False, {}, "/c", "process", None, 7)
    assert set(settings.to_options()) == options
    assert settings.to_options()["warm_memory_mib"] == 7
    assert json.loads(json.dumps(asdict(settings)))["warm_memory_mib"] == 7


@pytest.mark.parametrize("objects", [None, "postgresql://me:secret@db/objects"])
def test_no_password_of_an_address_is_in_what_a_ray_cluster_gets(
    tmp_path: Path, objects: str | None
) -> None:
    settings = _checked(tmp_path, "postgresql://me:secret@db/rye?sslpassword=secret", objects)
    request = RunRequest(ItemRef.parse("tool:acme/train"))
    tool = RayPayload(Payload(settings, "", request, CallContext()))
    for sent in (tool.to_bytes(), RayThread(settings, "run").to_bytes()):
        assert b"secret" not in sent
    read = RayPayload.from_bytes(tool.to_bytes()).payload.settings
    assert read.state == "postgresql://me@db/rye?schema=ryecore"
    assert read.objects == ((objects and "postgresql://me@db/objects?schema=ryecore") or read.state)


def _checked(folder: Path, state: str, objects: str | None) -> Settings:
    return check_options(
        folder, {"HOME": str(folder)}, user_space=None, system_spaces=(), inherit_env="safe",
        allow_env=(), trusted_keys=(), trust_project_interpreters=False, config=None,
        cache_dir=None, deps_factory=None, durability="process", warm_memory_mib=0, audit=None,
        state=state, objects=objects,
    )  # fmt: skip


def test_a_dictionary_of_options_has_the_types_of_the_arguments() -> None:
    parameters = dict(inspect.signature(Rye.open).parameters)
    del parameters["project_path"]
    arguments = {name: _spelt(parameter.annotation) for name, parameter in parameters.items()}
    assert {name: _spelt(kind) for name, kind in OpenOptions.__annotations__.items()} == arguments


def _spelt(annotation: object) -> str:
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else str(annotation)
    return text.replace("os.PathLike", "PathLike")


@pytest.mark.parametrize("bound", [0, 1, 256, 1024 * 1024])
def test_a_bound_for_warm_starts_is_a_number_of_mib(bound: int) -> None:
    assert check_warm_memory(bound) == bound


@pytest.mark.parametrize("bound", [-1, 1024 * 1024 + 1, True, 0.5])
def test_another_bound_is_refused(bound: int) -> None:
    with pytest.raises(ConfigError, match="warm_memory_mib is"):
        check_warm_memory(bound)


@pytest.mark.parametrize("durability", ["Machine", "disk", "", None])
def test_a_durability_that_there_is_none_of_is_refused(tmp_path: Path, durability: Any) -> None:
    with pytest.raises(ConfigError, match="durability is"):
        Rye.open(project_path=tmp_path, durability=durability)
