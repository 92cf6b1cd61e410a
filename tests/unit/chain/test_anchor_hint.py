"""A tool that imports a file beside it, and has no anchor."""

import pytest

from tests.workspace import SCRIPT, Workspace


@pytest.mark.parametrize("executor", ["rye/core/runtimes/python/function", SCRIPT])
def test_the_error_says_what_an_anchor_is_and_how_to_mark_one(
    workspace: Workspace, executor: str
) -> None:
    body = "import words\ndef execute(params, project_path): return words.HELLO"
    ref = workspace.python("acme/greet/greet", body, executor_id=executor)
    workspace.write("tools/acme/greet/words.py", 'HELLO = {"hello": 1}\n')
    done = workspace.execute(ref)
    folder = workspace.path("tools/acme/greet")
    assert "words stands beside the tool, which has no anchor" in str(done.error)
    assert f"put __init__.py or pyproject.toml into {folder}, then sign" in str(done.error)
    workspace.write("tools/acme/greet/__init__.py", "")
    assert workspace.execute(ref).success


def test_a_package_that_is_not_installed_is_another_matter(workspace: Workspace) -> None:
    ref = workspace.python("acme/greet", "import nobody_has_this")
    done = workspace.execute(ref)
    assert "nobody_has_this" in str(done.error)
    assert "anchor" not in str(done.error)


def test_a_tool_with_the_name_of_the_package_that_it_lacks_is_not_beside_itself(
    workspace: Workspace,
) -> None:
    ref = workspace.python("acme/nobody_has_this", "import nobody_has_this")
    done = workspace.execute(ref)
    assert "anchor" not in str(done.error)
    assert done.metadata["missing_module"] == "nobody_has_this"
