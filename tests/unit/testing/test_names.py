import importlib
import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator

import pytest

from ryecore.testing.objects import ObjectStore
from ryecore.testing.state import (
    ApprovalStore,
    BudgetLedger,
    RecordLog,
    RecordStore,
    ThreadRegistry,
)

PUBLIC = (
    "ryecore",
    "ryecore.errors",
    "ryecore.results",
    "ryecore.testing.state",
    "ryecore.testing.objects",
)


def test_fakes_need_no_sdk() -> None:
    code = (
        "import sys; from ryecore.testing import ScriptedProvider, say\n"
        "print(sorted({'openai', 'anthropic', 'google', 'pydantic', 'httpx2', 'pytest'}"
        " & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "protocol", [ThreadRegistry, BudgetLedger, ApprovalStore, RecordStore, RecordLog, ObjectStore]
)
def test_a_store_is_written_with_public_names_alone(protocol: type) -> None:
    public = {
        getattr(module, name)
        for module in map(importlib.import_module, PUBLIC)
        for name in module.__all__
        if isinstance(getattr(module, name), type)
    }

    used = {
        one
        for _, method in inspect.getmembers(protocol, inspect.isfunction)
        for hint in typing.get_type_hints(method).values()
        for one in _types(hint)
    }

    assert {one for one in used if one.__module__.startswith("ryecore.")} - public == set()


def _types(hint: object) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    for argument in typing.get_args(hint):
        yield from _types(argument)
