"""The dialects in which interpreters, and programs that run others, read arguments. Pure data.

Source: decision 79; ADR 020.
"""

from collections.abc import Mapping
from typing import Final, Literal

from ryecore.frozen import frozen

__all__ = ["COMMAND", "DIALECTS", "PYTHON", "SCRIPT_KEYWORD", "SHELLS", "Dialect", "Operands"]

SCRIPT_KEYWORD: Final = "x-rye-script"
"""The keyword with which a schema says that a text is a program, or with false that it is not."""

Operands = Literal[
    "file", "program", "second", "after_first", "all", "eval", "wrapped", "none", "verbs"
]


@frozen
class Dialect:
    """The dialect of an interpreter's arguments.

    Attributes:
        programs: Short options whose value is a program.
        values: Short options with another value, attached or in the next word.
        rests: Short options whose value is attached, if there is one.
        long_programs: Long options whose value is a program.
        long_values: Long options with other values, and how many words those are.
        files: Options that name the program's file.
        operands: The meaning of the operands: first the program's file, the program itself, ...
        stops: Whether all behind a program is an argument of it.
        permutes: Whether options may stand behind operands.
        keeps_variables: Whether `${NAME}` is the language's own.
        reads_stdin: Whether it reads a program on standard input where none is named.
        verbs: Words behind which operands are a program: the next one where it `stops`, else all.
        settings: Options before all operands with a setting, as `-c KEY=VALUE`.
        program_settings: The pattern of the settings that are a program.
        marked: The pattern of the beginning of an operand that is a program, such as vim's `+`.
    """

    programs: str = ""
    values: str = ""
    rests: str = ""
    long_programs: tuple[str, ...] = ()
    long_values: Mapping[str, int] = {}
    files: str = ""
    operands: Operands = "file"
    stops: bool = False
    permutes: bool = False
    keeps_variables: bool = False
    reads_stdin: bool = True
    verbs: frozenset[str] = frozenset()
    settings: tuple[str, ...] = ()
    program_settings: str | None = None
    marked: str | None = None


_GIT_PROGRAMS: Final = (
    "--exec", "--upload-pack", "--receive-pack", "--extcmd", "--tree-filter", "--index-filter",
    "--msg-filter", "--env-filter", "--commit-filter", "--parent-filter", "--tag-name-filter",
)  # fmt: skip
# Patterns are compiled when a command line is first matched with them.
_GIT_SETTINGS: Final = (
    r"(?i:\0|alias\.|(?:core\.(?:sshcommand|pager|editor|askpass|fsmonitor|hookspath|gitproxy|"
    r"alternaterefscommand)|sequence\.editor|diff\.external|gpg\..*program|pager\.|credential\.|"
    r"include|protocol\.|http\.proxy|(?:diff|merge|filter|difftool|mergetool|browser|man|remote|"
    r"trailer|guitool|sendemail|uploadpack|tar)\..*(?:command|driver|clean|smudge|process|cmd|"
    r"textconv|uploadpack|receivepack|vcs|hook)))"
)
_SSH_SETTINGS: Final = (
    r"(?i:\0|(?:proxy|local|remote|knownhosts|authorizedkeys)command|match|include|proxyusefdpass|"
    r"pkcs11provider|securitykeyprovider|xauthlocation)"
)
_NODE: Final = Dialect(
    programs="ep",
    values="rC",
    long_programs=("--eval", "--print"),
    long_values={"--require": 1, "--import": 1, "--loader": 1, "--conditions": 1, "--env-file": 1,
                 "--title": 1, "--input-type": 1, "--experimental-loader": 1},
    keeps_variables=True,
)  # fmt: skip
_AWK: Final = Dialect(
    programs="e", values="vF", files="f", long_programs=("--source",), long_values={"--file": 1,
    "--assign": 1, "--field-separator": 1}, operands="program", reads_stdin=False,
)  # fmt: skip
_SED: Final = Dialect(
    programs="e", files="f", rests="iEl", long_programs=("--expression",),
    long_values={"--file": 1}, operands="program", permutes=True, reads_stdin=False,
)  # fmt: skip
_JQ: Final = Dialect(
    values="L", files="f", long_values={"--arg": 2, "--argjson": 2, "--slurpfile": 2,
    "--rawfile": 2, "--indent": 1, "--from-file": 1}, operands="program", permutes=True,
    reads_stdin=False,
)  # fmt: skip
PYTHON: Final = Dialect(
    programs="c", values="WX", long_values={"--check-hash-based-pycs": 1}, stops=True
)
_EVAL: Final = Dialect(
    programs="eE", long_programs=("--eval", "--execute", "-eval", "--print"), values="l"
)
COMMAND: Final = Dialect(
    programs="c", values="sgGTE", long_programs=("--command", "--session-command"),
    operands="none", permutes=True, keeps_variables=True,
)  # fmt: skip
SHELLS: Final = frozenset(
    {
        "osh",
        "ysh",
        "posh",
        "oksh",
        "loksh",
        "sh",
        "bash",
        "rbash",
        "dash",
        "ash",
        "zsh",
        "ksh",
        "mksh",
        "yash",
        "csh",
        "tcsh",
    }
)
DIALECTS: Final[Mapping[str, Dialect]] = {
    **dict.fromkeys(("python", "pythonw", "py", "pypy", "ipython", "jython", "micropython", "hy",
                     "sage"), PYTHON),
    **dict.fromkeys(("node", "nodejs", "bun", "tsx", "ts-node"), _NODE),
    "deno": Dialect(programs="ep", operands="eval", keeps_variables=True),
    "perl": Dialect(programs="eEMm", values="I", rests="DdFiVx", keeps_variables=True),
    "ruby": Dialect(programs="e", values="ICEr", rests="0FKTWix"),
    "php": Dialect(programs="rBRE", values="cdfFSt", long_programs=("--run",),
                    keeps_variables=True),
    **dict.fromkeys(("lua", "luajit"), Dialect(programs="e", values="l")),
    **dict.fromkeys(("r", "rscript"), Dialect(programs="e", long_values={"--file": 1})),
    **dict.fromkeys(
        ("julia", "elixir", "iex", "erl", "groovy", "scala", "osascript", "racket", "sbcl",
         "ecl", "emacs", "raku", "perl6", "octave", "octave-cli", "clojure", "clj", "bb", "janet",
         "fennel", "irb", "kotlin", "swift", "gnuplot", "mongosh", "mongo", "csi", "ocaml", "ghc",
         "ghci", "runghc", "runhaskell", "pry", "coffee", "qjs"),
        _EVAL,
    ),
    **dict.fromkeys(("fish", "nu", "elvish", "xonsh"), Dialect(
        programs="cCe", values="dop", long_programs=("--command", "--commands", "--init-command",
        "--execute"), keeps_variables=True)),
    "cmd": Dialect(long_programs=("/c", "/k"), operands="all", reads_stdin=False),
    **dict.fromkeys(("tclsh", "wish", "expect"), Dialect(programs="c", files="f")),
    **dict.fromkeys(("vim", "nvim", "vi", "ex"), Dialect(
        programs="c", values="uT", files="sS", long_programs=("--cmd",), operands="none",
        permutes=True, reads_stdin=False, marked=r"\+")),
    **dict.fromkeys(("gdb", "lldb"), Dialect(
        programs="oO", values="p", long_programs=("-ex", "-iex", "-eval-command", "--eval-command",
        "--one-line"), operands="none", permutes=True)),
    "bpftrace": Dialect(programs="e", reads_stdin=False),
    "dtrace": Dialect(programs="nPmfi", values="xo", operands="none", permutes=True,
                      reads_stdin=False),
    "guile": Dialect(programs="c", values="lL"),
    **dict.fromkeys(("pwsh", "powershell"), Dialect(
        long_programs=("-c", "-command", "-encodedcommand"), operands="all", keeps_variables=True,
    )),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    **dict.fromkeys(("sed", "gsed"), _SED),
    **dict.fromkeys(("jq", "gojq", "jaq"), _JQ),
    "psql": Dialect(programs="c", values="hpUdvFRPo", files="f", long_programs=("--command",),
                     operands="none", permutes=True),
    **dict.fromkeys(("mysql", "mariadb"), Dialect(
        programs="e", values="hPuD", rests="p", long_programs=("--execute",), operands="none",
        permutes=True)),
    "sqlite": Dialect(
        long_programs=("-cmd",), operands="second", permutes=True,
        long_values={"-separator": 1, "-nullvalue": 1, "-newline": 1, "-init": 1}),
    "duckdb": Dialect(programs="cs", long_programs=("-c", "-s", "-cmd"), operands="second",
                      permutes=True, long_values={"-separator": 1, "-init": 1}),
    **dict.fromkeys(("clickhouse-client", "clickhouse"), Dialect(
        programs="q", long_programs=("--query",), operands="none", permutes=True)),
    **dict.fromkeys(("cqlsh", "trino", "presto", "hive", "beeline", "spark-sql"), Dialect(
        programs="e", values="ukf", long_programs=("--execute",), operands="none", permutes=True)),
    **dict.fromkeys(("sqlcmd", "snowsql"), Dialect(
        programs="Qq", values="SUPdi", long_programs=("--query",), operands="none",
        permutes=True)),
    "impala-shell": Dialect(programs="q", values="ifdo", long_programs=("--query",),
                            operands="none", permutes=True),
    **dict.fromkeys(("bq", "influx"), Dialect(
        operands="verbs", verbs=frozenset({"query"}), permutes=True, reads_stdin=False)),
    "redis-cli": Dialect(stops=True, values="hpan", operands="verbs", reads_stdin=False,
                         verbs=frozenset({"eval", "eval_ro"})),
    "mlr": Dialect(stops=True, operands="verbs", verbs=frozenset({"put", "filter"}), permutes=True,
                   reads_stdin=False),
    "yq": Dialect(values="iop", operands="program", permutes=True, reads_stdin=False,
                  verbs=frozenset({"e", "eval", "ea", "eval-all"})),
    **dict.fromkeys(("su", "runuser", "script", "flock"), COMMAND),
    **dict.fromkeys(("npx", "npm", "bunx"), Dialect(
        programs="c", values="pw", long_programs=("--call",), operands="none", permutes=True,
        reads_stdin=False)),
    "nix-shell": Dialect(values="pAI", long_programs=("--run", "--command", "--expr"),
                         operands="none", permutes=True, reads_stdin=False),
    "hyperfine": Dialect(values="wmMrns", operands="all", reads_stdin=False),
    "concurrently": Dialect(values="nc", operands="all", reads_stdin=False),
    **dict.fromkeys(("parallel", "sem"), Dialect(
        values="jaIn", operands="program", reads_stdin=False)),
    **dict.fromkeys(("pdsh", "pssh", "parallel-ssh"), Dialect(
        values="whHlp", operands="all", reads_stdin=False)),
    "adb": Dialect(values="sHP", operands="verbs", verbs=frozenset({"shell"}),
                   reads_stdin=False),
    "tmux": Dialect(values="ncstxyFLSf", operands="verbs", permutes=True, reads_stdin=False,
                    verbs=frozenset({"new", "new-session", "neww", "new-window", "split-window",
                                     "splitw", "run", "run-shell", "send-keys", "send"})),
    "git": Dialect(
        values="C", long_programs=_GIT_PROGRAMS, operands="verbs", permutes=True,
        reads_stdin=False, verbs=frozenset({"foreach"}), settings=("-c", "--config"),
        program_settings=_GIT_SETTINGS, keeps_variables=True),
    **dict.fromkeys(("gmake", "make", "remake"), Dialect(
        values="CIjloW", files="f", long_programs=("--eval",), long_values={"--file": 1,
        "--directory": 1}, operands="none", permutes=True, reads_stdin=False,
        marked=r"[\w.]*[:?+!]*=")),
    "rsync": Dialect(programs="e", long_programs=("--rsh", "--rsync-path"), operands="none",
                     permutes=True, reads_stdin=False),
    "tar": Dialect(
        programs="IF", values="fCTXbg", long_programs=("--to-command", "--checkpoint-action",
        "--use-compress-program", "--rsh-command", "--info-script", "--new-volume-script"),
        operands="none", permutes=True, reads_stdin=False),
    "socat": Dialect(operands="none", permutes=True, reads_stdin=False,
                     marked=r"(?i:exec|system|shell)[:,]"),
    **dict.fromkeys(("nc", "ncat", "netcat"), Dialect(
        programs="ce", long_programs=("--exec", "--sh-exec"), operands="none", permutes=True,
        reads_stdin=False)),
    **dict.fromkeys(("scp", "sftp"), Dialect(
        programs="SD", values="cFiJlPXBR", settings=("-o",), program_settings=_SSH_SETTINGS,
        operands="none", permutes=True, reads_stdin=False)),
    "ansible": Dialect(programs="a", values="imtfuBPlTeM", long_programs=("--args",),
                       operands="none", permutes=True, reads_stdin=False),
    "vagrant": Dialect(programs="c", long_programs=("--command",), operands="none", permutes=True,
                       reads_stdin=False),
    "gcloud": Dialect(long_programs=("--command",), operands="none", permutes=True,
                      reads_stdin=False),
    "heroku": Dialect(values="ar", operands="verbs", verbs=frozenset({"run"}), reads_stdin=False),
    "rails": Dialect(values="e", stops=True, operands="verbs", verbs=frozenset({"runner", "r"}),
                     reads_stdin=False),
    "wp": Dialect(stops=True, operands="verbs", verbs=frozenset({"eval"}), reads_stdin=False),
    "mix": Dialect(programs="e", long_programs=("--eval",), stops=True, operands="verbs",
                   verbs=frozenset({"eval"}), reads_stdin=False),
    "crystal": Dialect(operands="eval", reads_stdin=False),
    "swipl": Dialect(programs="gt", values="lsx", reads_stdin=False),
    "jsonnet": Dialect(programs="e", values="JVAoS", long_programs=("--exec",), operands="none",
                       permutes=True, reads_stdin=False),
    "dc": Dialect(programs="e", files="f", long_programs=("--expression",)),
    "blender": Dialect(long_programs=("--python-expr",), operands="none", permutes=True,
                       reads_stdin=False),
    "matlab": Dialect(long_programs=("-batch", "-r"), operands="none", permutes=True),
    "wolframscript": Dialect(programs="c", long_programs=("-code",), values="f"),
    "entr": Dialect(programs="s", operands="wrapped", reads_stdin=False),
    "watchexec": Dialect(values="eiwofdns", operands="all", reads_stdin=False),
    "nodemon": Dialect(programs="x", values="ewi", long_programs=("--exec",), operands="none",
                       permutes=True, reads_stdin=False),
    "xterm": Dialect(programs="e", long_programs=("-e",), operands="none", permutes=True,
                     reads_stdin=False),
    "watch": Dialect(values="n", operands="all", reads_stdin=False, keeps_variables=True),
    "rsh": Dialect(values="l", operands="after_first", reads_stdin=False),
    "ssh": Dialect(values="BbcDEeFIiJLlmOpQRSWw", operands="after_first", settings=("-o",),
                   program_settings=_SSH_SETTINGS, reads_stdin=False),
    "env": Dialect(programs="S", values="uC", long_programs=("--split-string",),
                    operands="wrapped", reads_stdin=False),
    "busybox": Dialect(operands="wrapped", reads_stdin=False),
}  # fmt: skip
