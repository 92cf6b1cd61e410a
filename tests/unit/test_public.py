"""The public surface: what `import ryecore` offers, and what it costs."""

import importlib
import inspect
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import ryecore
from ryecore import results


def run(program: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environ
    )


def test_all_is_what_is_there_and_at_most_sixty_names():
    assert len(ryecore.__all__) <= 60
    assert len(set(ryecore.__all__)) == len(ryecore.__all__)


def test_what_calls_give_is_public_by_itself_and_not_twice():
    assert not set(results.__all__) & set(ryecore.__all__)
    for name in results.__all__:
        assert getattr(results, name).__doc__, name


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        ryecore.no_such_name  # noqa: B018


def test_every_public_name_has_a_docstring():
    for name in ryecore.__all__:
        value = getattr(ryecore, name)
        if callable(value) and typing.get_origin(value) is None:  # a closed set of texts has none
            assert value.__doc__, name


def test_importing_the_library_imports_none_of_what_it_stands_on():
    heavy = ["anyio", "attrs", "click", "dotenv", "nacl", "ruamel", "packaging", "tomli_w"]
    program = (
        "import ryecore, ryecore.results, sys; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = run(program)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_importing_rye_and_sync_rye_imports_no_database_event_loop_or_search_index():
    heavy = ["asyncio", "sqlite3", "ssl", "subprocess", "ray", "dbos", "ryecore.search.index"]
    program = (
        "from ryecore import Rye, SyncRye; import sys; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = run(program)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_module_says_what_is_public():
    root = Path(ryecore.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if "system" in path.parts or path.name == "__main__.py":
            continue
        text = path.read_text()
        if path.name == "__init__.py" and not re.search(r"^(from|import) ", text, re.MULTILINE):
            continue
        assert "__all__" in text or "__dir__ = lazy_names" in text, path


def test_a_missing_extension_is_one_clear_import_error(tmp_path):
    shutil.copytree(
        Path(ryecore.__file__).parent,
        tmp_path / "ryecore",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    done = run("import ryecore", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ryecore's native extension is not built.")
    assert "make build" in last


def test_another_platform_is_refused_at_import():
    program = "import sys; sys.platform = 'win32'; import ryecore"
    done = run(program)
    assert "ImportError: ryecore runs on Linux" in done.stderr
    assert "WSL" in done.stderr


PACKAGES = (
    "ryecore",
    "ryecore.agent",
    "ryecore.lillux",
    "ryecore.llm",
    "ryecore.providers.anthropic",
    "ryecore.providers.gemini",
    "ryecore.providers.openai",
    "ryecore.testing",
    "ryecore.tools",
)


def _parameters(value: object) -> set[str]:
    names = inspect.signature(typing.cast(typing.Any, value)).parameters
    return {name.removesuffix("_") for name in names} - {"self", "cls"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_public_docstring_that_describes_arguments_describes_all(package: str) -> None:
    module = importlib.import_module(package)
    functions: dict[str, object] = {}
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value):
            functions[name] = value
        elif inspect.isclass(value):
            for member, function in vars(value).items():
                if inspect.isfunction(function) and not member.startswith("_"):
                    functions[f"{name}.{member}"] = function
    for name, function in functions.items():
        _, _, arguments = (inspect.getdoc(function) or "").partition("\nArgs:\n")
        described = set(re.findall(r"^    \*{0,2}(\w+?)_?(?: \(.*\))?: ", arguments, re.MULTILINE))
        if arguments:
            assert _parameters(function) <= described, name
