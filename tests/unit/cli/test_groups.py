"""Commands that are imported when they are called."""

import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete

from ryecore.cli.commands import rye
from ryecore.cli.groups import LazyGroup
from tests.unit.cli.conftest import Run, environ
from tests.workspace import Workspace

CONTEXT = click.Context(rye)


def loaded(*arguments: str, env: dict[str, str] | None = None) -> set[str]:
    """Run a command, and return the modules that its process has imported."""
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from ryecore.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    )
    return set(done.stderr.splitlines()[-1].split())


def of_ryecore(modules: set[str]) -> set[str]:
    return {name.removeprefix("ryecore.") for name in modules if name.startswith("ryecore.")}


@pytest.mark.parametrize("name", rye.list_commands(CONTEXT))
def test_the_table_shows_of_each_command_its_own_short_help(name: str) -> None:
    command = rye.get_command(CONTEXT, name)

    assert isinstance(rye, LazyGroup)
    assert command is not None
    assert command.name == name
    assert command.short_help == rye.lazy[name].short_help


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_version_and_the_help_import_no_command(option: str) -> None:
    modules = loaded(option)

    assert of_ryecore(modules) == {"_lazy", "_native", "cli", "cli.commands", "cli.groups"}
    assert modules.isdisjoint(
        {"anyio", "asyncio", "attrs", "cattrs", "nacl", "ruamel", "sqlite3", "yaml"}
    )


def test_a_shell_tool_is_executed_without_the_parts_for_threads_graphs_and_models(
    workspace: Workspace,
) -> None:
    ref = workspace.shell("a/t", "echo hi")

    everything = loaded("execute", ref, "--project", str(workspace.project), env=environ(workspace))

    modules = of_ryecore(everything)
    rooms = {name.partition(".")[0] for name in modules}
    assert rooms.isdisjoint(
        {"agent", "directives", "graph", "llm", "mcp_client", "providers", "search", "testing"}
    )
    assert {name for name in modules if name.startswith(("state.", "threads.", "runs."))} == {
        "runs.tasks",
        "state.lazy_store",
        "state.object_places",
    }
    assert "policy.limits" not in modules
    assert len(modules) < 84
    assert everything.isdisjoint(
        {"sqlite3", "cattrs", "tomli_w", "importlib.metadata", "email", "decimal", "lzma"}
    )


def test_unknown_commands_are_guessed(run: Run) -> None:
    assert "Did you mean 'execute'?" in run("execut").err
    assert "Write: rye graph validate" in run("validate").err


def test_a_shell_completes_commands_without_their_modules_and_then_their_options() -> None:
    complete = ShellComplete(rye, {}, "rye", "_RYE_COMPLETE")

    assert [one.value for one in complete.get_completions([], "t")] == [
        "threads", "trace", "trust-project",
    ]  # fmt: skip
    assert "--timeout" in [one.value for one in complete.get_completions(["execute"], "--t")]
    assert "list" in [one.value for one in complete.get_completions(["threads"], "l")]
    assert "--version" in [one.value for one in complete.get_completions([], "--")]


def test_a_completion_of_commands_imports_none() -> None:
    program = (
        "import sys; from ryecore.cli.commands import rye\n"
        "from click.shell_completion import ShellComplete\n"
        "found = ShellComplete(rye, {}, 'rye', '_RYE_COMPLETE').get_completions([], '')\n"
        "print(len(found), [name for name in sys.modules if 'ryecore.rye' in name])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "20 []\n"
