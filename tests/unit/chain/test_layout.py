"""What a tool can import is verified and sealed with it; what is left out can't be imported."""

import json
import os
import sysconfig

import pytest

from ryecore.errors import AnchorError, ContentChanged, UnsignedItem
from tests.interpreter import PYTHON
from tests.workspace import FUNCTION, Workspace, events

TRY = """\
def execute(params, project_path):
    import importlib
    found = {}
    for name in params["names"]:
        try:
            found[name] = importlib.import_module(name).VALUE
        except ImportError as problem:
            found[name] = type(problem).__name__
    return found
"""


def package(workspace: Workspace, **files: str) -> str:
    """A tool that imports the names that it is given, with signed modules beside it."""
    workspace.write("tools/a/__init__.py", "")
    for name, text in files.items():
        workspace.write(f"tools/a/{name}.py", text)
    return workspace.python("a/tool", TRY)


def imports(workspace: Workspace, ref: str, *names: str) -> dict[str, object]:
    done = workspace.execute(ref, {"names": names})
    assert done.success, done.error
    return done.data


def test_signed_modules_beside_a_tool_can_be_imported(workspace):
    ref = package(workspace, helper="VALUE = 1")
    workspace.write("tools/a/sub/__init__.py", "VALUE = 2")
    assert imports(workspace, ref, "helper", "sub") == {"helper": 1, "sub": 2}


def test_without_a_marker_the_snapshot_is_the_tools_one_file(workspace):
    workspace.write("tools/a/helper.py", "VALUE = 1")
    assert imports(workspace, workspace.python("a/tool", TRY), "helper") == {
        "helper": "ModuleNotFoundError"
    }


def test_a_changed_sibling_is_refused_with_the_authors_own_path(workspace):
    ref = package(workspace, helper="VALUE = 1")
    path = workspace.path("tools/a/helper.py")
    path.write_text(path.read_text().replace("1", "2"))
    with pytest.raises(ContentChanged) as refusal:
        workspace.execute(ref, {"names": []}, trace=True)
    assert str(path) in refusal.value.message
    assert "'a/tool' can import" in refusal.value.message
    assert "sealed" not in str(refusal.value)
    assert refusal.value.trace[-1]["step"] == "seal"
    assert refusal.value.trace[-1]["failed"]


def test_an_unsigned_sibling_is_refused_even_where_nothing_imports_it(workspace):
    ref = package(workspace)
    path = workspace.write("tools/a/sub/planted.py", "VALUE = 'evil'", sign=False)
    with pytest.raises(UnsignedItem, match=str(path)):
        workspace.execute(ref, {"names": []})


def test_what_lies_in_an_excluded_folder_cannot_be_imported(workspace):
    ref = package(workspace)
    for folder in ("config", "__pycache__", ".git"):
        workspace.write(f"tools/a/{folder}/mod.py", "VALUE = 'evil'", sign=False)
    workspace.write("tools/a/config/__init__.py", "VALUE = 'evil'", sign=False)
    assert imports(workspace, ref, "config.mod", "config") == {
        "config.mod": "ModuleNotFoundError",
        "config": "ModuleNotFoundError",
    }


def test_planted_bytecode_is_not_what_runs(workspace):
    import py_compile
    from importlib.util import cache_from_source

    ref = package(workspace, helper="VALUE = 'signed'")
    planted = workspace.root / "planted.py"
    planted.write_text("VALUE = 'evil'")
    helper = workspace.path("tools/a/helper.py")
    cached = cache_from_source(str(helper))
    py_compile.compile(
        str(planted), cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    py_compile.compile(str(planted), str(workspace.path("tools/a/only.pyc")))
    py_compile.compile(str(planted), str(helper.with_suffix(".pyc")))
    assert imports(workspace, ref, "helper", "only") == {
        "helper": "signed",
        "only": "ModuleNotFoundError",
    }


def test_a_planted_native_module_is_not_what_runs(workspace):
    ref = package(workspace, helper="VALUE = 'signed'")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for name in (f"helper{suffix}", "helper.so", f"only{suffix}"):
        workspace.write(f"tools/a/{name}", b"\x7fELF planted", sign=False)
    assert imports(workspace, ref, "helper", "only") == {
        "helper": "signed",
        "only": "ModuleNotFoundError",
    }


def test_a_native_module_with_a_signed_sidecar_enters_and_a_changed_one_is_refused(workspace):
    ref = package(workspace)
    path = workspace.write("tools/a/only.so", b"\x7fELF signed")
    # It is there now: the loader finds it, and says that it is no module.
    assert imports(workspace, ref, "only") == {"only": "ImportError"}
    path.write_bytes(b"\x7fELF changed")
    with pytest.raises(ContentChanged, match=str(path)):
        workspace.execute(ref, {"names": []})


def test_data_of_an_importable_kind_needs_a_sidecar(workspace):
    ref = package(workspace)
    path = workspace.write("tools/a/data.json", '{"a": 1}', sign=False)
    with pytest.raises(UnsignedItem, match=str(path)):
        workspace.execute(ref, {"names": []})
    workspace.sign(path)
    assert imports(workspace, ref) == {}


def test_a_link_that_leaves_the_anchor_is_refused(workspace):
    ref = package(workspace)
    outside = workspace.write("tools/b/evil.py", "VALUE = 'evil'")
    link = workspace.path("tools/a/linked.py")
    link.symlink_to(outside)
    with pytest.raises(AnchorError, match="leaves the anchor"):
        workspace.execute(ref, {"names": []})


def test_a_link_to_a_folder_outside_is_not_followed(workspace):
    ref = package(workspace)
    workspace.write("tools/b/__init__.py", "VALUE = 'evil'")
    workspace.path("tools/a/linked").symlink_to(workspace.path("tools/b"))
    assert imports(workspace, ref, "linked") == {"linked": "ModuleNotFoundError"}


def test_a_tree_that_cannot_be_read_as_a_whole_is_one_clear_error(workspace):
    """Here for a path that is longer than the system takes."""
    ref = package(workspace)
    folder = os.open(workspace.path("tools/a"), os.O_RDONLY)
    for _ in range(20):
        os.mkdir("f" * 250, dir_fd=folder)
        inner = os.open("f" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    with pytest.raises(AnchorError, match="can't be read as a whole") as refused:
        workspace.execute(ref, {"names": []}, trace=True)
    assert refused.value.trace[-1]["failed"]


def test_the_snapshot_is_read_only_and_holds_verified_files_alone(workspace):
    ref = package(workspace, helper="VALUE = 1")
    workspace.write("tools/a/notes.txt", "not importable", sign=False)
    body = """\
def execute(params, project_path):
    import os
    here = os.path.dirname(os.path.abspath(__file__))
    return {name: os.stat(os.path.join(here, name)).st_mode & 0o777 for name in os.listdir(here)}
"""
    workspace.python("a/tool", body)
    assert workspace.execute(ref).data == {
        "__init__.py": 0o400,
        "helper.py": 0o400,
        "tool.py": 0o400,
    }


def test_a_snapshot_that_was_tampered_with_is_made_anew(workspace):
    ref = package(workspace, helper="VALUE = 1")
    with workspace.sync() as rye:
        done = rye.execute(ref, {"names": ["helper"]}, dry_run=True)
        sealed = next(arg for arg in done.plan.args if arg.endswith("/tool.py"))
        helper = sealed.removesuffix("tool.py") + "helper.py"
        os.chmod(helper, 0o600)
        with open(helper, "w") as file:
            file.write("VALUE = 'evil'")
        assert rye.execute(ref, {"names": ["helper"]}).data == {"helper": 1}


def test_a_traceback_shows_the_authors_own_paths(workspace):
    ref = package(workspace, helper="def boom():\n    raise ValueError('why')\nVALUE = 1")
    workspace.python(
        "a/tool", "def execute(params, project):\n    import helper\n    helper.boom()"
    )
    done = workspace.execute(ref)
    assert not done.success
    assert str(workspace.path("tools/a/tool.py")) in done.error
    assert str(workspace.path("tools/a/helper.py")) in done.error
    assert "sealed" not in done.error + json.dumps(done.data)


def test_a_package_folder_is_linked_and_marks_the_chain_unverified(workspace):
    workspace.write("tools/a/node_modules/left-pad/index.js", "module.exports = 1", sign=False)
    workspace.write("tools/a/package.json", "{}")
    workspace.yaml(
        "a/node",
        anchor={"enabled": True, "markers_any": ["package.json"]},
        verify_deps={"enabled": True, "extensions": [".sh"], "exclude_dirs": ["node_modules"]},
        config={"command": "/bin/ls", "args": ["{anchor_path}/node_modules"]},
    )
    ref = workspace.shell("a/tool", "", executor_id="a/node")
    done = workspace.execute(ref, trace=True)
    assert done.data["stdout"] == "left-pad\n"
    assert done.to_dict()["metadata"]["deps"] == "unverified"
    assert events(done.trace, "seal")[0]["linked"] == ["node_modules"]


def test_a_tool_without_package_folders_has_verified_dependencies(workspace):
    ref = package(workspace)
    done = workspace.execute(ref, {"names": []}, dry_run=True)
    assert done.plan.deps == "verified"


def test_the_runtimes_library_lies_beside_the_runtimes_own_file_and_is_verified(workspace):
    workspace.yaml(
        "rt/python",
        executor_id="rye/core/primitives/execute",
        anchor={
            "enabled": True,
            "mode": "always",
            "lib": "lib",
            "env_paths": {"PYTHONPATH": {"prepend": ["{anchor_path}", "{runtime_lib}"]}},
        },
        verify_deps={"enabled": True, "extensions": [".py"]},
        config={
            "command": PYTHON,
            "args": ["-c", "import shared; print(shared.VALUE)"],
        },
    )
    library = workspace.write("tools/rt/lib/shared.py", "VALUE = 'from the runtime'")
    ref = workspace.python("a/tool", "", executor_id="rt/python")
    assert workspace.execute(ref).data["stdout"] == "from the runtime\n"
    library.write_text(library.read_text() + "VALUE = 'evil'\n")
    with pytest.raises(ContentChanged, match=str(library)):
        workspace.execute(ref)


def test_a_traceback_in_the_runtimes_library_shows_the_authors_own_path_too(workspace):
    workspace.yaml(
        "rt/python",
        anchor={
            "enabled": True,
            "mode": "always",
            "lib": "lib",
            "env_paths": {"PYTHONPATH": {"prepend": ["{runtime_lib}"]}},
        },
        verify_deps={"enabled": True, "extensions": [".py"]},
        config={"command": PYTHON, "args": ["-c", "import shared"]},
    )
    library = workspace.write("tools/rt/lib/shared.py", "raise ValueError('why')")
    done = workspace.execute(workspace.python("a/tool", "", executor_id="rt/python"))
    assert str(library) in done.error


def test_a_library_folder_that_leaves_the_kinds_folder_is_refused(workspace):
    workspace.yaml(
        "rt/python",
        anchor={"enabled": True, "mode": "always", "lib": "../../../lib"},
        config={"command": "/bin/true"},
    )
    (workspace.project / "lib").mkdir()
    with pytest.raises(AnchorError, match="leaves"):
        workspace.execute(workspace.python("a/tool", "", executor_id="rt/python"))


def test_the_runtime_may_make_the_anchor_the_working_folder(workspace):
    workspace.yaml(
        "a/runtime",
        anchor={"enabled": True, "mode": "always", "cwd": "{anchor_path}"},
        config={"command": "/bin/ls"},
    )
    assert workspace.execute(workspace.shell("a/tool", "", executor_id="a/runtime")).data[
        "stdout"
    ] == ("tool.sh\n")


@pytest.mark.parametrize(
    ("scope", "importable"),
    [
        ("anchor", {"top": 1, "beside": 2, "below": 3}),
        ("tool_dir", {"top": None, "beside": 2, "below": 3}),
        ("tool_siblings", {"top": None, "beside": 2, "below": None}),
        ("tool_file", {"top": None, "beside": None, "below": None}),
    ],
)
def test_the_scope_says_how_much_of_the_anchor_is_sealed(workspace, scope, importable):
    workspace.write("tools/a/pyproject.toml", "")
    for number, name in enumerate(("top", "sub/beside", "sub/lib/below"), start=1):
        workspace.write(f"tools/a/{name}.py", f"VALUE = {number}")
    body = """\
def execute(params, project_path):
    import os, sys
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path += [here, here + "/lib", os.path.dirname(here)]
    found = {}
    for name in ("top", "beside", "below"):
        try:
            found[name] = __import__(name).VALUE
        except ImportError:
            found[name] = None
    return found
"""
    deps = {"enabled": True, "scope": scope, "extensions": [".py"]}
    ref = workspace.python("a/sub/tool", body, verify_deps=deps)
    assert workspace.execute(ref).data == importable


def test_a_tool_can_exclude_itself_from_anchoring(workspace):
    workspace.write("tools/a/__init__.py", "")
    workspace.write("tools/a/unsigned.py", "", sign=False)
    ref = workspace.python("a/tool", TRY, executor_id=FUNCTION, anchor={"enabled": False})
    assert imports(workspace, ref, "unsigned") == {"unsigned": "ModuleNotFoundError"}
