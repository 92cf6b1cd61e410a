"""The variables that a process inherits, and the entries of search paths that it keeps. Pure.

Source: decisions 20 and 78.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal

from ryecore.policy.credentials import is_credential

__all__ = [
    "InheritEnv",
    "for_own_process",
    "is_short_listed",
    "may_inherit",
    "without_project_entries",
]

InheritEnv = Literal["safe", "all", "none"] | Collection[str]
"""What a tool inherits of the environment: all but what looks like a credential (`safe`), all,
only what a process needs to start (`none`), or these names besides."""

_SHORT_LIST: Final = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TERM")

# The search paths of programs and of code to load. An empty or relative entry of one would mean the
# working folder of the child, which is the project.
_SEARCH_PATHS: Final = (
    "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "CDPATH", "FPATH",
    "BASH_ENV", "ENV", "ZDOTDIR", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONSTARTUP",
    "PYTHONPYCACHEPREFIX", "NODE_PATH", "RUBYLIB", "GEM_PATH", "GEM_HOME", "BUNDLE_GEMFILE",
    "PERL5LIB", "PERLLIB", "LUA_PATH", "LUA_CPATH", "R_LIBS", "CLASSPATH", "AWKPATH", "AWKLIBPATH",
    "GIO_MODULE_DIR", "GIO_EXTRA_MODULES", "GI_TYPELIB_PATH", "GTK_PATH", "QT_PLUGIN_PATH",
    "QML_IMPORT_PATH", "QML2_IMPORT_PATH", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR",
)  # fmt: skip
_SEPARATORS: Final[Mapping[str, str]] = {"LD_PRELOAD": "[: ]", "LUA_PATH": ";", "LUA_CPATH": ";"}
# A library's bare name is found in the system's folders, and ENV=production is not a path.
_BARE_NAMES: Final = frozenset({"LD_PRELOAD", "LD_AUDIT", "ENV"})


def is_short_listed(name: str) -> bool:
    """Return whether every program gets a variable, because it may need it to start.

    The list is that of the MCP SDKs with language, time zone and temporary folder.
    """
    return _SHORT_LIST.fullmatch(name) is not None


def may_inherit(name: str, rule: InheritEnv, value: str = "") -> bool:
    """Return whether a tool's process inherits a variable that no signed element names.

    Args:
        name: The variable's name.
        rule: The host's rule.
        value: The variable's value, which may be a credential.
    """
    if isinstance(rule, str):
        if rule == "all":
            return True
        return is_short_listed(name) if rule == "none" else not is_credential(name, value)
    return name in rule or not is_credential(name, value)


def without_project_entries(
    environ: Mapping[str, str], is_outside: Callable[[str], bool]
) -> tuple[dict[str, str], list[str]]:
    """Remove the entries of search paths that would load a project's unverified code.

    Args:
        environ: The environment.
        is_outside: Whether an absolute path may be searched.

    Returns:
        The environment without relative entries and those in the project, and the names of the
        variables that were changed.
    """
    changed = dict(environ)
    narrowed: list[str] = []
    for name in _SEARCH_PATHS:
        if name not in environ:
            continue
        separator = _SEPARATORS.get(name, ":")
        entries = re.split(separator, environ[name])
        kept = [
            entry
            for entry in entries
            if (entry.startswith("/") and is_outside(entry))
            or (name in _BARE_NAMES and re.fullmatch(r"[^./][^/]*", entry))
        ]
        if kept == entries:
            continue
        narrowed.append(name)
        changed[name] = (separator if len(separator) == 1 else ":").join(kept)
        if not kept:
            del changed[name]
    return changed, narrowed


def for_own_process(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process of ryecore's own, which runs in another folder.

    Relative entries of `PYTHONPATH` are made absolute, so that the process finds the modules that
    this one finds. Empty entries are removed.
    """
    changed = dict(environ)
    if "PYTHONPATH" in changed:
        entries = filter(None, changed["PYTHONPATH"].split(os.pathsep))
        changed["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, entries))
    return changed
