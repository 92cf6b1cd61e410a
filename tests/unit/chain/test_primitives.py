"""The primitives at the end of every chain."""

import pytest

from ryecore import MAX_CHAIN_DEPTH, PRIMITIVE_MAP, ExecutePrimitive, ExecutionPlan
from ryecore.chain.model import WarmPlan, WarmTemplate
from ryecore.errors import SpawnFailed
from ryecore.lillux.processes import WarmPool

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


async def test_a_plan_that_can_start_warm_starts_cold_without_a_template():
    warm = WarmPlan(1, "exit 3", WarmTemplate("exit 3", b"", b"{}"))
    can = plan("/bin/sh", "-c", "cat", warm=warm)
    pool = WarmPool(1024)
    for primitive in (ExecutePrimitive(), ExecutePrimitive(pool)):
        done = await primitive.run(can)
        assert (done.stdout, done.exit_code, done.warm) == (b"in", 0, False)
    assert pool.close()
    assert (await ExecutePrimitive(pool).run(can)).stdout == b"in"
