"""The primitives at the end of every chain."""

import pytest

from ryecore import MAX_CHAIN_DEPTH, PRIMITIVE_MAP, ExecutePrimitive, ExecutionPlan
from ryecore.errors import SpawnFailed

pytestmark = pytest.mark.anyio


def plan(command: str, *args: str, **changes: object) -> ExecutionPlan:
    facts = {"cwd": "/", "env": {"A": "b"}, "stdin": b"in", "timeout_s": 5, "max_output_bytes": 9}
    return ExecutionPlan(command=command, args=args, **facts | changes)


async def test_execute_is_the_only_primitive():
    assert dict(PRIMITIVE_MAP) == {"rye/core/primitives/execute": ExecutePrimitive}
    assert MAX_CHAIN_DEPTH == 10


async def test_a_plan_is_carried_out_to_the_letter():
    done = await ExecutePrimitive().run(plan("/bin/sh", "-c", "cat; pwd; echo $A $0", "zero"))
    assert done.stdout == b"in/\nb zer"
    assert done.stdout_total_bytes == len("in/\nb zero\n")
    assert done.exit_code == 0


async def test_a_program_that_is_not_there_is_refused():
    with pytest.raises(SpawnFailed):
        await ExecutePrimitive().run(plan("/nowhere/program"))
