"""A runtime that an author adds: the Ruby one of the documentation, with a tool in Ruby."""

import json
import shutil

import pytest

from ryecore.errors import ContentChanged, UnsignedItem, UntrustedKey
from ryecore.items.signature import CommentForm
from tests.workspace import PRIMITIVE, Workspace, events

pytestmark = pytest.mark.skipif(shutil.which("ruby") is None, reason="Ruby is not installed")

RUNTIME = """\
version: "1.0.0"
tool_type: runtime
executor_id: rye/core/primitives/execute
category: rye/core/runtimes/ruby
description: "Ruby runtime: executes Ruby scripts with bundler support"
file_types: {".rb": "#"}
env_config:
  interpreter:
    type: local_binary
    binary: ruby
    search_paths: [".rbenv/shims", ".rvm/rubies/default/bin"]
    var: RYE_RUBY
    fallback: ruby
  env:
    BUNDLE_GEMFILE: "{anchor_path}/Gemfile"
anchor:
  enabled: true
  mode: auto
  markers_any: [Gemfile, Gemfile.lock]
  root: tool_dir
  lib: lib/ruby
  cwd: "{anchor_path}"
  env_paths:
    RUBYLIB:
      prepend: ["{anchor_path}", "{runtime_lib}"]
verify_deps:
  enabled: true
  scope: anchor
  recursive: true
  extensions: [.rb, .yaml, .yml, .json]
  exclude_dirs: [.bundle, .git, node_modules]
config:
  command: "${RYE_RUBY}"
  args:
    - "{tool_path}"
    - "--project-path"
    - "{project_path}"
  input_data: "{params_json}"
  timeout: 300
"""
TOOL = """\
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/ruby/ruby"
# __category__ = "my/ruby"
# CONFIG_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}},
#   "required": ["name"]}
require "json"
require "greeting"
params = JSON.parse($stdin.read)
puts JSON.generate({message: greet(params["name"]), args: ARGV, cwd: Dir.pwd,
                    gemfile: ENV["BUNDLE_GEMFILE"]})
"""
FORMS = {".rb": CommentForm.of("#")}
REF = "tool:my/ruby/greet"


def furnish(workspace: Workspace, space="project") -> None:
    workspace.write("tools/rye/core/runtimes/ruby/ruby.yaml", RUNTIME, space=space)
    for name, text in {
        "greet.rb": TOOL,
        "greeting.rb": 'def greet(name) = "Hello #{name}"\n',
        "Gemfile": "",
    }.items():
        path = workspace.write(f"tools/my/ruby/{name}", text, sign=False)
        workspace.sign(path, file_types=FORMS)


@pytest.mark.parametrize("space", ["project", "user"])
def test_a_ruby_tool_runs_through_its_verified_chain(workspace, space):
    furnish(workspace, space)
    done = workspace.execute(REF, {"name": "Alice"}, trace=True)
    assert done.success, done.error
    assert done.data["message"] == "Hello Alice"
    assert done.data["args"] == ["--project-path", str(workspace.project)]
    assert done.chain.ids == ("my/ruby/greet", "rye/core/runtimes/ruby/ruby", PRIMITIVE)
    sealed = events(done.trace, "seal")[0]
    assert sealed["anchor"] == str(workspace.path("tools/my/ruby"))
    assert done.data["cwd"] == done.data["gemfile"].removesuffix("/Gemfile")
    assert json.dumps(done.to_dict())


def test_the_rye_signs_ruby_files_once_the_runtime_is_signed(workspace):
    furnish(workspace)
    path = workspace.path("tools/my/ruby/greet.rb")
    path.write_text(TOOL)
    with workspace.sync() as rye:
        with pytest.raises(UnsignedItem):
            rye.execute(REF, {"name": "Alice"})
        assert len(rye.sign("tool:my/ruby/*").signed) == 3
        assert rye.execute(REF, {"name": "Alice"}).success
    assert path.read_text().startswith("# rye:signed:")


def test_its_parameters_are_checked_from_its_own_header(workspace):
    furnish(workspace)
    from ryecore.errors import InvalidParameters

    with pytest.raises(InvalidParameters, match="name"):
        workspace.execute(REF, {})


def test_a_changed_library_is_refused(workspace):
    furnish(workspace)
    path = workspace.path("tools/my/ruby/greeting.rb")
    path.write_text(path.read_text().replace("Hello", "Bye"))
    with pytest.raises(ContentChanged, match=str(path)):
        workspace.execute(REF, {"name": "Alice"})


def test_a_runtime_that_is_not_trusted_adds_no_file_type(workspace):
    from ryecore import SigningKey
    from ryecore.errors import ItemNotFound

    furnish(workspace)
    workspace.sign(
        workspace.path("tools/rye/core/runtimes/ruby/ruby.yaml"), key=SigningKey.generate()
    )
    with pytest.raises((ItemNotFound, UntrustedKey)):
        workspace.execute(REF, {"name": "Alice"})


def test_a_runtimes_library_is_found_too(workspace):
    furnish(workspace)
    workspace.path("tools/my/ruby/greeting.rb").unlink()
    library = workspace.write(
        "tools/rye/core/runtimes/ruby/lib/ruby/greeting.rb",
        'def greet(name) = "Hi #{name}"\n',
        sign=False,
    )
    workspace.sign(library, file_types=FORMS)
    assert workspace.execute(REF, {"name": "Bob"}).data["message"] == "Hi Bob"
