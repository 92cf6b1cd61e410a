"""What a runtime declares so that its processes can start warm, and what becomes of it."""

import json

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from ryecore import CallContext
from ryecore.chain.layout import SealedLayout
from ryecore.chain.model import ExecutionPlan, WarmTemplate
from ryecore.chain.plan import PlanInputs, build_plan
from ryecore.chain.prepared import PreparedChain
from ryecore.errors import (
    AnchorError,
    ContentChanged,
    MetadataError,
    UnresolvedPlaceholder,
    UnsignedItem,
)
from ryecore.graph.result_cache import result_key
from ryecore.items.refs import ItemRef
from ryecore.runs.ports import Planned
from tests.unit.chain.elements import element, valid
from tests.unit.chain.test_own_process import ours, problems_of
from tests.workspace import PRIMITIVE, Workspace, events

pytestmark = pytest.mark.anyio

FORK = "wait({fork_point}, {nowhere})"  # what stands for it is not read again
WARM = {"template": "template.sh", "fork_point": FORK}
ARGS = ["-c", "a=1\n{fork_point}\necho {tool_path}", "{tool_path}"]
CONFIG = {"command": "/bin/echo", "args": ARGS}
TEMPLATE = WarmTemplate(FORK, b"program", b"{}")


def runtime(workspace: Workspace, **declared: object) -> str:
    """A runtime that can start warm, its template, and a tool of it."""
    workspace.write("tools/a/template.sh", "# a template\n")
    workspace.yaml("a/run", **{"warm": WARM, "config": CONFIG} | declared)
    workspace.write("tools/a/t.sh", '# __executor_id__ = "a/run"\n')
    return "tool:a/t"


async def prepared_of(workspace: Workspace, ref: str, **opened: object) -> PreparedChain:
    async with workspace.open(**opened) as rye:
        return await rye._parts.execute.inspect(ref, CallContext())


async def layout_of(workspace: Workspace, ref: str) -> SealedLayout:
    return (await prepared_of(workspace, ref)).layout


async def test_the_template_is_told_what_to_import_and_owns_verified_bytes(
    workspace: Workspace,
) -> None:
    ref = runtime(workspace, warm=WARM | {"preload": ["json", "a.b"], "leading_imports": True})
    layout = await layout_of(workspace, ref)
    assert layout.warm is not None
    assert layout.warm.fork_point == FORK
    assert layout.warm.program == workspace.path("tools/a/template.sh").read_bytes()
    told = json.loads(layout.warm.settings)
    assert told == {"preload": ["json", "a.b"], "tool": str(layout.tool_path)}
    assert "a template" not in repr(layout)


async def test_without_leading_imports_the_template_is_not_told_the_tool(
    workspace: Workspace,
) -> None:
    layout = await layout_of(workspace, runtime(workspace))
    assert layout.warm is not None
    assert json.loads(layout.warm.settings) == {"preload": [], "tool": None}


def test_no_file_of_the_template_is_among_the_elements_of_the_chain(workspace: Workspace) -> None:
    done = workspace.execute(runtime(workspace))
    assert done.chain.ids == ("a/t", "a/run", PRIMITIVE)


def test_in_a_cold_start_the_fork_point_is_empty_and_the_lines_stay(workspace: Workspace) -> None:
    done = workspace.execute(runtime(workspace))
    assert done.success
    assert str(done.data["stdout"]).startswith("-c a=1\n\necho /")


def test_a_changed_template_is_refused_at_once_and_by_name(workspace: Workspace) -> None:
    ref = runtime(workspace)
    path = workspace.path("tools/a/template.sh")
    with workspace.sync() as rye:
        assert rye.execute(ref).success
        path.write_text(path.read_text() + "evil\n")
        with pytest.raises(ContentChanged, match="'a/run' names a file") as refusal:
            rye.execute(ref, trace=True)
        assert str(path) in refusal.value.message
        assert refusal.value.trace[-1]["step"] == "verify_integrity"
        workspace.sign(path)
        assert rye.execute(ref).success


async def test_a_template_that_is_signed_anew_is_another_one(workspace: Workspace) -> None:
    ref = runtime(workspace)
    path = workspace.path("tools/a/template.sh")
    async with workspace.open() as rye:
        seen = []
        for text in ("# one\n", "# another\n"):
            workspace.write("tools/a/template.sh", text)
            plan = await plan_of(rye, ref)
            assert plan.warm is not None
            assert plan.warm.template.program == path.read_bytes()
            seen.append(plan.warm.template.program)
        assert seen[0] != seen[1]


def test_an_unsigned_template_is_refused(workspace: Workspace) -> None:
    ref = runtime(workspace)
    workspace.write("tools/a/template.sh", "# mine\n", sign=False)
    with pytest.raises(UnsignedItem, match=r"template\.sh"):
        workspace.execute(ref)


async def test_without_its_template_a_runtime_starts_cold_until_there_is_one(
    workspace: Workspace,
) -> None:
    ref = runtime(workspace)
    path = workspace.path("tools/a/template.sh")
    signed = path.read_bytes()
    path.unlink()
    async with workspace.open() as rye:
        done = await rye.execute(ref, trace=True)
        assert done.success
        assert [one["missing"] for one in events(done.trace, "warm")] == ["template.sh"]
        executor = rye._parts.execute._executor
        assert (await executor.plan(ItemRef("tool", "a/t"), {}, CallContext()))[1].warm is None
        path.write_bytes(signed)
        assert (await executor.plan(ItemRef("tool", "a/t"), {}, CallContext()))[1].warm is not None


def test_a_template_that_is_a_link_out_of_the_folder_is_refused(workspace: Workspace) -> None:
    ref = runtime(workspace)
    path = workspace.path("tools/a/template.sh")
    path.rename(workspace.path("tools/elsewhere.sh"))
    path.symlink_to("../elsewhere.sh")
    with pytest.raises(AnchorError, match="leaves the anchor"):
        workspace.execute(ref)


def test_a_dry_run_verifies_the_template_anew(workspace: Workspace, monkeypatch) -> None:
    ref = runtime(workspace)
    with workspace.sync() as rye:
        seen = []
        audit = rye._target._parts._executor._auditor
        verify = audit.verify
        monkeypatch.setattr(audit, "verify", lambda source: seen.append(source) or verify(source))
        rye.execute(ref, dry_run=True)
    assert workspace.path("tools/a/template.sh") in [source.path for source in seen]


async def plan_of(rye, ref: str, parameters: dict[str, object] | None = None) -> ExecutionPlan:
    _, plan = await rye._parts._executor.plan(ItemRef.parse(ref), parameters or {}, CallContext())
    return plan


async def test_what_is_not_verified_starts_cold(workspace: Workspace) -> None:
    ref = runtime(workspace)
    workspace.environ["RYE_DEV_MODE"] = "1"
    for name in ("t.sh", "run.yaml", "template.sh"):
        path = workspace.path(f"tools/a/{name}")
        before = path.read_text()
        path.write_text(before + "# edited\n")
        with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
            async with workspace.open() as rye:
                assert (await plan_of(rye, ref)).warm is None
        path.write_text(before)
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        async with workspace.open() as rye:
            assert (await plan_of(rye, ref)).warm is not None


async def test_an_unverified_module_beside_the_tool_makes_it_start_cold(
    workspace: Workspace,
) -> None:
    anchor = {"enabled": True, "markers_any": ["pyproject.toml"]}
    ref = runtime(workspace, anchor=anchor, verify_deps={"enabled": True, "extensions": [".sh"]})
    workspace.write("tools/a/pyproject.toml", "", sign=False)
    assert (await layout_of(workspace, ref)).warm is not None
    workspace.write("tools/a/module.sh", "", sign=False)
    workspace.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        layout = await layout_of(workspace, ref)
    assert not layout.is_sealed
    assert layout.warm is None


# What rules it out


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"config": {**CONFIG, "args": ["{tool_path}"]}}, "stands 0 times"),
        ({"config": {"command": "/bin/echo"}}, "stands 0 times"),
        ({"config": {**CONFIG, "args": ["{fork_point}", "x{fork_point}"]}}, "stands 2 times"),
        ({"config": {**CONFIG, "args": ["{fork_point} {fork_point}"]}}, "stands 2 times"),
        ({"config": {**CONFIG, "args": ["${fork_point}"]}}, "stands 0 times"),
        ({"config": {**CONFIG, "keep_warm": "{tool_path}"}}, "keep_warm"),
        ({"config_schema": {"type": "object", "properties": {"fork_point": {}}}}, "reserved"),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_refused(workspace: Workspace, declared, said) -> None:
    ref = runtime(workspace, **declared)
    with pytest.raises(MetadataError, match=said) as refusal:
        workspace.execute(ref)
    assert str(workspace.path("tools/a/run.yaml")) in refusal.value.message
    assert "'a/t'" in refusal.value.message


def test_a_process_of_ryecores_own_takes_none_from_its_tool() -> None:
    for warm in (WARM, False):
        said = problems_of(element("a/t", warm=warm), ours())
        assert "'a/t' declares warm, which 'a/ours' does not take" in said


@pytest.mark.parametrize(
    "warm",
    [
        True,
        {},
        {"template": "t.py"},
        {"fork_point": "x"},
        WARM | {"more": 1},
        WARM | {"template": "../t.py"},
        WARM | {"template": ".."},
        WARM | {"template": "/t.py"},
        WARM | {"template": ""},
        WARM | {"fork_point": ""},
        WARM | {"fork_point": "a\nb"},
        WARM | {"fork_point": "a\0b"},
        WARM | {"preload": "json"},
        WARM | {"preload": [1]},
        WARM | {"leading_imports": 1},
    ],
)
def test_another_form_is_refused_with_its_place(warm) -> None:
    with pytest.raises(MetadataError) as refusal:
        element("a/run", warm=warm)
    assert all(problem.place[0] == "warm" for problem in refusal.value.problems)


async def test_a_tool_may_say_that_it_starts_cold(workspace: Workspace) -> None:
    runtime(workspace)
    workspace.write("tools/a/cold.sh", '# __executor_id__ = "a/run"\n# __warm__ = False\n')
    prepared = await prepared_of(workspace, "tool:a/cold")
    assert prepared.layout.warm is None
    assert str(workspace.execute("tool:a/cold").data["stdout"]).startswith("-c a=1\n\necho /")


def test_a_tool_may_have_a_constant_of_that_name(workspace: Workspace) -> None:
    runtime(workspace)
    workspace.write("tools/a/mine.sh", '# __executor_id__ = "a/run"\n# WARM = [1, 2]\n')
    assert workspace.execute("tool:a/mine").success


# The plan


def plan(
    *args: str, parameters: dict[str, object] | None = None, config: object = None, **run: object
) -> ExecutionPlan:
    """A plan whose fork point is known, as in a chain whose runtime declares it."""
    made = PlanInputs(
        parameters=parameters or {},
        context={"tool_path": "/t", "fork_point": ""},
        env={"HOME": "/h"},
        cwd="/p",
        warm=TEMPLATE,
    )
    tool = element("a/t", config=config or {}, **run)
    parent = element("a/run", config={"command": "/bin/run", "args": list(args)}, **run)
    return build_plan(valid(tool, parent), made)


def test_one_argument_differs_in_the_template() -> None:
    made = plan("-x", "{tool_path} a\n{fork_point}\nb ${HOME}", "{tool_path}")
    assert made.args == ("-x", "/t a\n\nb /h", "/t")
    assert made.warm is not None
    assert (made.warm.arg_index, made.warm.arg) == (1, f"/t a\n{FORK}\nb /h")
    assert made.warm.template is TEMPLATE


def test_an_argument_that_becomes_several_moves_the_place() -> None:
    schema = {"type": "object", "properties": {"many": {"type": "array"}}}
    made = plan(
        "{many}", "{fork_point}", parameters={"many": ["a", "b", "c"]}, config_schema=schema
    )
    assert made.args == ("a", "b", "c", "")
    assert made.warm is not None
    assert (made.warm.arg_index, made.warm.arg) == (3, FORK)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_no_parameter_is_what_the_fork_point_stands_for(text: str) -> None:
    schema = {"type": "object", "properties": {"fork_point": {}, "word": {}}}
    for hostile in (text, "{fork_point}", "${HOME}{tool_path}"):
        made = plan(
            "say", "{fork_point}-{word}", "{word}",
            parameters={"fork_point": hostile, "word": hostile}, config_schema=schema,
            config={"fork_point": hostile},
        )  # fmt: skip
        assert made.args == ("say", f"-{hostile}", hostile)
        assert made.warm is not None
        assert made.warm.arg == f"{FORK}-{hostile}"


@pytest.mark.parametrize(
    "args", [["mine"], ["{fork_point}", "{fork_point}"], ["{fork_point}{fork_point}"]]
)
def test_a_tool_with_arguments_of_its_own_starts_cold(args) -> None:
    made = plan("{fork_point}", config={"args": args})
    assert made.warm is None
    assert "fork_point" not in str(made.args)


def test_a_shells_script_may_hold_the_fork_point() -> None:
    made = plan("-c", "a; {fork_point}", config={"command": "/bin/bash"})
    assert made.args == ("-c", "a; ")
    assert made.warm is not None
    assert (made.warm.arg_index, made.warm.arg) == (1, f"a; {FORK}")


def test_a_plan_shows_nothing_of_it() -> None:
    made = plan("{fork_point}")
    assert "warm" not in made.to_dict()
    assert "program" not in repr(made)


def test_where_nothing_declares_it_nothing_stands_for_it() -> None:
    inputs = PlanInputs(parameters={}, context={}, env={}, cwd="/p")
    tool = element("a/t", config={"command": "/bin/run", "args": ["{fork_point}"]})
    with pytest.raises(UnresolvedPlaceholder, match="fork_point"):
        build_plan(valid(tool), inputs)


async def test_the_key_of_a_remembered_result_does_not_depend_on_it(workspace: Workspace) -> None:
    ref = runtime(workspace)
    async with workspace.open() as rye:
        chain, can = await rye._parts._executor.plan(ItemRef.parse(ref), {}, CallContext())
    assert can.warm is not None
    keys = {result_key(b"s", Planned(chain, plan)) for plan in (can, evolve(can, warm=None))}
    assert len(keys) == 1
