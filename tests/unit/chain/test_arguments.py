"""Values as whole arguments, and programs in which no value stands."""

import pytest

from ryecore.chain.plan import PlanInputs, build_plan, check_programs
from ryecore.errors import ConfigError, InputError, PlaceholderInScript, UnresolvedPlaceholder
from tests.unit.chain.elements import element, valid

NAME = {"type": "object", "properties": {"name": {}}}
COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}}


def chain(
    command: str,
    args: list[object],
    *,
    tool: dict[str, object] | None = None,
    extension: str = ".py",
    **config: object,
):
    """A tool whose runtime has this command line; both declare `name`."""
    return valid(
        element("a/t", extension=extension, **{"config_schema": NAME, **(tool or {})}),
        element("a/r", config={"command": command, "args": args, **config}, config_schema=NAME),
    )


def inputs(**parameters: object) -> PlanInputs:
    return PlanInputs(
        parameters, {"tool_path": "/t", "project_path": "/p"}, {"HOME": "/h", "SH": "/bin/sh"}, "/p"
    )


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("/bin/bash", ["-c", "echo {name}"]),
        ("/bin/bash", ["-c", "echo '{name}'"]),
        ("/bin/sh", ["-ec", "cat <<E\n{name}\nE"]),
        ("${SH}", ["-c", "{name}; id"]),
        ("bash", ["-co", "pipefail", "x {name}"]),
        ("bash", ["-c", "--", "ls {project_path}"]),
        ("bash", ["-c", "{project_path}"]),
        ("bash", ["-c", "{params_json}"]),
        ("bash", ["-c", "echo {anchor_path}"]),
        ("/usr/bin/env", ["bash", "-c", "echo {name}"]),
        ("/usr/bin/env", ["-i", "/bin/zsh", "-lc", "echo {name}"]),
        ("/usr/bin/env", ["-S", "bash -c {name}"]),
        ("timeout", ["5", "dash", "-c", "echo {name}"]),
        ("/usr/bin/python3.12", ["-Ic", "print({name})"]),
        ("python3", ["-cprint({name})"]),
        ("python3", ["-c", "open('${HOME}')"]),
        ("node", ["--eval=f({name})"]),
        ("node", ["-pe", "'{name}'"]),
        ("perl", ["-ne", "print '{name}'"]),
        ("perl", ["-MList::Util={name}", "x.pl"]),
        ("ruby", ["-e", "puts '{name}'"]),
        ("php", ["-r", "echo '{name}';"]),
        ("gawk", ["/{name}/ { print }", "file"]),
        ("sed", ["-n", "s/{name}/x/p", "file"]),
        ("jq", [".{name}"]),
        ("psql", ["-c", "select '{name}'"]),
        ("ssh", ["host", "ls {name}"]),
        ("git", ["bisect", "run", "sh", "-c", "ls {name}"]),
        ("npm", ["exec", "--", "bash", "-c", "ls {name}"]),
        ("adb", ["-s", "x", "exec-out", "python3", "-c", "print({name})"]),
        ("vagrant", ["ssh", "--", "sh", "-c", "ls {name}"]),
        ("vagrant", ["ssh", "-c", "ls {name}"]),
        ("ansible", ["all", "-m", "shell", "-a", "ls {name}"]),
        ("entr", ["-rs", "ls {name}"]),
        ("watchexec", ["-e", "py", "ls {name}"]),
        ("rails", ["runner", "p '{name}'"]),
        ("mix", ["run", "-e", "f('{name}')"]),
        ("blender", ["-b", "--python-expr", "f('{name}')"]),
        ("matlab", ["-batch", "f('{name}')"]),
        ("runghc", ["-e", "f {name}"]),
        ("beeline", ["-u", "x", "-e", "select '{name}'"]),
        ("bq", ["query", "--nouse_legacy_sql", "select '{name}'"]),
        ("rsh", ["host", "ls {name}"]),
        ("xterm", ["-e", "sh", "-c", "ls {name}"]),
        ("su", ["-c", "ls {name}", "root"]),
        ("su", ["-", "root", "--", "-c", "ls {name}"]),
        ("find", [".", "-exec", "sh", "-c", "ls {name}", ";"]),
        ("xargs", ["-I@", "sh", "-c", "ls {name}"]),
        ("docker", ["run", "--rm", "img", "sh", "-c", "ls {name}"]),
        ("env", ["-iS", "bash -c {name}"]),
        ("git", ["-c", "alias.x=!sh -c {name}", "x"]),
        ("git", ["-c", "core.sshCommand=ssh -i {name}", "fetch"]),
        ("git", ["-c", "{name}", "status"]),
        ("git", ["rebase", "--exec", "make {name}"]),
        ("git", ["submodule", "foreach", "git checkout {name}"]),
        ("ssh", ["-o", "ProxyCommand=nc {name} 22", "host"]),
        ("ssh", ["-oProxyCommand=nc {name} 22", "host"]),
        ("rsync", ["-ave", "ssh -p {name}", "a", "b"]),
        ("tar", ["-xf", "x.tar", "--to-command=sh {name}"]),
        ("make", ["all", "NAME={name}"]),
        ("make", ["--eval", "X={name}"]),
        ("tclsh8.6", []),
        ("expect", ["-c", "send {name}"]),
        ("fish", ["-d", "3", "-c", "ls {name}"]),
        ("nu", ["-c", "ls {name}"]),
        ("osh", ["-c", "ls {name}"]),
        ("python3.13t", ["-c", "print({name})"]),
        ("python3", ["-m", "timeit", "f({name})"]),
        ("node", ["--import", "data:text/javascript,{name}", "x.mjs"]),
        ("raku", ["-e", "say '{name}'"]),
        ("octave-cli", ["--eval=f({name})"]),
        ("vim", ["+e {name}"]),
        ("gdb", ["-ex", "p {name}"]),
        ("duckdb", ["x.db", "-c", "select '{name}'"]),
        ("sqlite3", ["-separator", ",", "x.db", "select '{name}'"]),
        ("mongosh", ["--eval", "f({name})"]),
        ("redis-cli", ["EVAL", "return '{name}'", "0"]),
        ("mlr", ["--icsv", "put", "$a = {name}", "f.csv"]),
        ("yq", ["eval", ".a = {name}", "f.yaml"]),
        ("npx", ["-c", "tsc {name}"]),
        ("parallel", ["-j2", "convert {name}", ":::", "x"]),
        ("tmux", ["new-session", "-s", "x", "vim {name}"]),
        ("adb", ["shell", "ls", "x{name}"]),
        ("socat", ["-", "SYSTEM:cat {name}"]),
        ("cmd.exe", ["/c", "dir {name}"]),
    ],
)
def test_a_placeholder_in_a_program_is_refused_before_there_are_parameters(command, args):
    more = {"input_data": "puts {name}"} if not args else {}
    with pytest.raises(PlaceholderInScript, match="must not be part of a program") as caught:
        check_programs(chain(command, args, **more), inputs())
    assert caught.value.next_step
    with pytest.raises(PlaceholderInScript):
        build_plan(chain(command, args, **more), inputs(name="a"))


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ("bash", ["-c", "{name}"], ["-c", "v"]),
        ("bash", ["-c", 'echo "$1"', "_", "x {name}"], ["-c", 'echo "$1"', "_", "x v"]),
        ("bash", ["-c", 'echo ${HOME} ${name} "${HOME}"'], None),
        ("bash", ["-c", "awk '{print}' f"], None),
        ("python3", ["-c", "print(f'{x}')", "{name}"], ["-c", "print(f'{x}')", "v"]),
        ("python3", ["{tool_path}", "-c", "x {name}"], ["/t", "-c", "x v"]),
        ("node", ["-e", "`${HOME}`", "{name}"], ["-e", "`${HOME}`", "v"]),
        ("awk", ["{ print }", "f"], None),
        ("awk", ["-v", "x={name}", "{ print x }"], ["-v", "x=v", "{ print x }"]),
        ("jq", ["--arg", "x", "{name}", ".[$x]"], ["--arg", "x", "v", ".[$x]"]),
        ("/usr/bin/tool", ["--at={project_path}/{name}", "${HOME}/x"], ["--at=/p/v", "/h/x"]),
        ("/usr/bin/tool", ["-c", "say {name}"], ["-c", "say v"]),
        (
            "git",
            ["-C", "{project_path}", "switch", "-c", "x/{name}"],
            ["-C", "/p", "switch", "-c", "x/v"],
        ),
        (
            "git",
            ["-c", "user.name={name}", "commit", "-m", "add {name}"],
            ["-c", "user.name=v", "commit", "-m", "add v"],
        ),
        ("git", ["clean", "-fdx", "{project_path}"], ["clean", "-fdx", "/p"]),
        ("git", ["clone", "--", "{name}"], ["clone", "--", "v"]),
        ("make", ["-C", "{project_path}", "{name}"], ["-C", "/p", "v"]),
        ("tar", ["-xzf", "{project_path}/a.tgz", "-C", "{name}"], ["-xzf", "/p/a.tgz", "-C", "v"]),
        ("rsync", ["-av", "{project_path}/", "{name}"], ["-av", "/p/", "v"]),
        ("npx", ["-y", "tool", "--dir={project_path}"], ["-y", "tool", "--dir=/p"]),
        ("npm", ["run", "build", "--", "-c", "x {name}"], ["run", "build", "--", "-c", "x v"]),
        (
            "redis-cli",
            ["EVAL", "return KEYS[1]", "1", "user:{name}"],
            ["EVAL", "return KEYS[1]", "1", "user:v"],
        ),
        ("mlr", ["--icsv", "head", "{project_path}/f"], ["--icsv", "head", "/p/f"]),
        (
            "ssh",
            ["-o", "ConnectTimeout={name}", "-i", "{project_path}/key", "host"],
            ["-o", "ConnectTimeout=v", "-i", "/p/key", "host"],
        ),
        ("vim", ["-es", "{project_path}/f"], ["-es", "/p/f"]),
    ],
)
def test_beside_a_program_a_value_is_an_argument(command, args, expected):
    check_programs(chain(command, args), inputs())
    made = build_plan(chain(command, args), inputs(name="v"))
    assert list(made.args) == (args if expected is None else expected)


@pytest.mark.parametrize("name", ["$(touch x)", "';x;'", "a\nb", "--flags", "${IFS}", "{name}", ""])
def test_a_value_is_put_in_once_and_whole(name):
    made = build_plan(chain("/usr/bin/tool", ["{name}", "--x={name}"]), inputs(name=name))
    assert made.args == (name, f"--x={name}")


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("bash", ["-c", "{name}"]),
        ("bash", ["{name}"]),
        ("gawk", ["-f", "{tool_path}", "{name}"]),
        ("python3", ["{name}", "{tool_path}"]),
        ("sed", ["-f", "{tool_path}", "f", "{name}"]),
        ("ssh", ["{name}"]),
    ],
)
def test_a_value_that_an_interpreter_would_read_as_an_option_is_refused(command, args):
    with pytest.raises(InputError, match="option") as caught:
        build_plan(chain(command, args), inputs(name="-e'BEGIN{system(\"id\")}'"))
    assert '"--" before "{name}"' in caught.value.next_step
    behind = [*args[: args.index("{name}")], "--", *args[args.index("{name}") :]]
    made = build_plan(chain(command, behind), inputs(name="-e"))
    assert "-e" in made.args


@pytest.mark.parametrize(
    ("args", "tool", "missing", "step"),
    [
        (["{nobody}"], {}, ["nobody"], "Declare nobody"),
        (["--x={nobody}"], {}, ["nobody"], "Declare nobody"),
        (["{anchor_path}"], {}, ["anchor_path"], "no anchor"),
        (["{server_config_path}"], {}, ["server_config_path"], "item_paths"),
        (["{runtime_lib}/x", "{nobody}"], {}, ["nobody", "runtime_lib"], "anchor.lib"),
        (["{name}"], {}, ["name"], "Pass name."),
        (["{name}"], {"config_schema": None}, ["name"], "declare it"),
        (["{command}"], {}, ["command"], "Declare command"),
        (["{args}"], {}, ["args"], "Declare args"),
        (["{far}"], {}, ["nobody"], "Declare nobody"),
    ],
)
def test_a_placeholder_without_a_value_is_refused(args, tool, missing, step):
    with pytest.raises(UnresolvedPlaceholder, match="nothing was run") as caught:
        build_plan(chain("/usr/bin/tool", args, tool=tool, far="x{nobody}"), inputs())
    assert list(caught.value.placeholders) == missing
    assert step in caught.value.next_step


def test_a_placeholder_without_a_value_in_the_programs_name_is_refused():
    with pytest.raises(UnresolvedPlaceholder):
        build_plan(chain("{anchor_path}/bin/tool", []), inputs())


def test_what_a_runtimes_schema_declares_is_never_an_execution_key():
    """Else the inner bash would read the parameters on standard input as its script."""
    bash = element(
        "a/r",
        config={"command": "/bin/bash", "args": ["-c", "{command}"], "input_data": "{params_json}"},
        config_schema=COMMAND,
    )
    for schema in (NAME, None, COMMAND):
        with pytest.raises(UnresolvedPlaceholder):
            build_plan(valid(element("a/t", config_schema=schema), bash), inputs(name="$(id)"))


def test_a_bound_of_the_runtime_may_be_an_argument():
    made = build_plan(chain("/usr/bin/tool", ["--timeout={timeout}"], timeout=7), inputs())
    assert made.args == ("--timeout=7",)


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("bash", []),
        ("/bin/bash", ["-s"]),
        ("python3", ["-"]),
        ("node", []),
        ("python3", ["/dev/fd/0"]),
        ("awk", ["-f", "-"]),
        ("awk", ["-f-"]),
        ("sed", ["-nf", "/dev/stdin"]),
        ("psql", ["-f", "-"]),
        ("sqlite3", ["x.db"]),
        ("make", ["-f", "-"]),
        ("expect", ["-f", "-"]),
    ],
)
@pytest.mark.parametrize("text", ["{params_json}", "run {name}"])
def test_a_placeholder_in_a_program_on_standard_input_is_refused(command, args, text):
    with pytest.raises(PlaceholderInScript):
        check_programs(chain(command, args, input_data=text), inputs())
    with pytest.raises(PlaceholderInScript):
        build_plan(chain(command, args, input_data=text), inputs(name="a"))


def test_a_parameter_within_the_name_of_the_program_is_refused():
    with pytest.raises(PlaceholderInScript, match="what runs"):
        check_programs(chain("/usr/bin/{name}", []), inputs())


@pytest.mark.parametrize("script", ["grep {name} f", "cd {project_path}", "{name}"])
def test_a_placeholder_in_a_tools_own_script_is_refused(script):
    declared = {"type": "object", "properties": {"command": {}, "name": {}}}
    tool = element("a/t", config={"command": script}, config_schema=NAME)
    bash = element(
        "a/r", config={"command": "bash", "args": ["-c", "{command}"]}, config_schema=declared
    )
    with pytest.raises(PlaceholderInScript) as caught:
        check_programs(valid(tool, bash), inputs())
    assert "config.script_args" in caught.value.next_step


def test_a_tools_own_script_gets_its_parameters_behind_it():
    tool = element(
        "a/t",
        config={
            "command": "grep -- \"$2\" '{x}'",
            "script_args": ["{name}", "--in={project_path}"],
        },
        config_schema=NAME,
    )
    bash = element(
        "a/r",
        config={"command": "bash", "args": ["-c", "{command}", "_", "{project_path}"]},
        config_schema=COMMAND,
    )
    made = build_plan(valid(tool, bash), inputs(name="$(id)"))
    assert made.args == ("-c", "grep -- \"$2\" '{x}'", "_", "/p", "$(id)", "--in=/p")
    with pytest.raises(UnresolvedPlaceholder, match="name"):
        build_plan(valid(tool, bash), inputs())


def test_a_program_that_is_no_text_is_refused():
    with pytest.raises(InputError, match="must be a string"):
        build_plan(chain("bash", ["-c", "{name}"]), inputs(name=["id"]))


@pytest.mark.parametrize("extension", [".yaml", ".yml", ".toml", ".json"])
def test_a_declaration_is_not_run_as_a_program(extension):
    for command, args in (
        ("bash", ["{tool_path}", "{project_path}"]),
        ("python3", ["{tool_path}"]),
    ):
        with pytest.raises(ConfigError, match="declares a tool"):
            build_plan(chain(command, args, extension=extension), inputs())
    reader = chain("/usr/bin/reader", ["{tool_path}"], extension=extension)
    assert build_plan(reader, inputs()).args == ("/t",)
