"""Which variables a process gets: inherited ones, and those of a project's `.env`. Pure.

A name that steers a program, or the place where its code comes from, is never set from a `.env`,
even where a signed element asks for it.

Source: decisions 19, 20 and 78.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Final, Literal

__all__ = [
    "ANSWERS",
    "CHANNEL",
    "InheritEnv",
    "for_own_process",
    "is_credential",
    "is_short_listed",
    "is_variable_name",
    "looks_like_credential",
    "may_inherit",
    "may_set_from_dotenv",
    "variables_named_in",
    "without_project_entries",
]

_STORES: Final = (
    r"DATABASE|DB|POSTGRES(?:QL)?|PG|MYSQL|MARIADB|MSSQL|SQLSERVER|ORACLE|MONGO(?:DB)?|REDIS|VALKEY"
    r"|KEYDB|MEMCACHED?|CACHE|AMQP|RABBIT(?:MQ)?|CLOUDAMQP|BROKER|CELERY|QUEUE|KAFKA|NATS|MQTT"
    r"|CLICKHOUSE|ELASTIC(?:SEARCH)?|OPENSEARCH|SOLR|NEO4J|COUCH(?:DB|BASE)|CASSANDRA|INFLUX(?:DB)?"
    r"|SQLALCHEMY|JDBC|LDAP|SMTP|IMAP|MAIL(?:ER)?|EMAIL|SENTRY|SUPABASE|JAWSDB|CLEARDB"
)
_CREDENTIAL_NAME: Final = re.compile(
    # anywhere in the name
    r"API_?KEY|TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|PASSCODE|PASSFILE|CREDENTIAL|ACCESS_?KEY"
    r"|PRIVATE_?KEY|SIGNING_?KEY(?!_DIR$)|ENCRYPTION_?KEY|MASTER_?KEY|SERVICE_?ACCOUNT|SERVICE_?KEY"
    r"|CONN(?:ECTION)?_?STR|WEB_?HOOK|COOKIE|MNEMONIC|BEARER|AUTHORIZATION|KEYFILE|KEYSTORE|KEYTAB"
    r"|KEYRING|HTPASSWD|SESSION_?KEY|PHPSESSID|_SESSID"
    # as a word, or the end of one
    r"|(?:^|_)(?:SK|PK|PW|PWD|PSK|JWT|PAT|PIN|OTP|TOTP|SALT|PEPPER|HMAC|CREDS?|AUTH_?KEY|LICENSE)"
    r"(?=_|$)"
    r"|(?<!BY)(?<!COM)(?<!SUR)(?<!TRES)PASS(?=_|$)"
    r"|(?<!MON)(?<!TUR)(?<!HOC)(?<!DON)(?<!WHIS)(?<!JOC)KEYS?$"
    r"|(?:^|_)KEY_(?!(?:DIR|REPEAT|DELAY|MAP|BINDINGS?|TIMEOUT)$)"
    r"|(?:^|_)(?:O?AUTH\d?)(?:_(?:HEADER|CODE|DATA|INFO|SOCK|STRING|CONFIG|FILE|JSON|COOKIE))?$"
    r"|(?:^|_)(?:PEM|P12|PFX|WALLET_SEED|SEED_PHRASE|SIGNATURE|SESSION(?:_ID|ID)?)$|DSN$"
    # stores, whose addresses often carry a password
    rf"|(?:^|_)(?:{_STORES})(?:\w*_UR[LI]S?|UR[LI])$"
    # files and sockets that hold credentials, or lend them
    r"|^(?:KUBECONFIG|KUBE_CONFIG\w*|DOCKER_CONFIG|DOCKER_AUTH\w*|NETRC|GNUPGHOME|GPG_AGENT_INFO"
    r"|SSH_AUTH_SOCK|SSH_AGENT_PID|AWS_CONFIG_FILE|BOTO_CONFIG|BOTO_PATH|CLOUDSDK_CONFIG"
    r"|AZURE_CONFIG_DIR|KRB5CCNAME|KRB5_\w*KTNAME|XAUTHORITY|ICEAUTHORITY|GNOME_KEYRING\w*"
    r"|PGSERVICEFILE|RYE_STATE|RYE_OBJECTS|NPM_CONFIG_USERCONFIG|VAULT_CACERT|TF_VAR_\w*KEY\w*|REDISCLI_AUTH)$",
)
"""Matches names in capitals, which is compiled faster than to match any case."""
_HARMLESS: Final = re.compile(
    r"PWD|OLDPWD|(?:XDG|DESKTOP|GNOME|KDE|DBUS|GDM|TERM|ITERM|WT|WAYLAND|GNOME_DESKTOP)\w*SESSION\w*"
    r"|RYE_SIGNING_KEY_DIR",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    # a URL with a password, or with a token in the place of the user
    r"[A-Za-z][A-Za-z0-9+.\-]{0,40}://(?:[^/?#\s@:]*:[^/?#\s]+|[^/?#\s@:]{16,})@"
    # a setting of a connection string or a query
    r"|(?:^|[?&;,\s])(?:password|passwd|pwd|secret|api_?key|access_?key|token|sig|signature"
    r"|accountkey|sharedaccesskey|_authtoken|client_secret)\s*=\s*[^\s;&]{4,}"
    # what well-known issuers write
    r"|-----BEGIN [A-Z0-9 ]*PRIVATE KEY|\bAGE-SECRET-KEY-|\beyJ[\w-]{10,400}\.eyJ"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}"
    r"|\b(?:gh[pousr]|github_pat|glpat|xox[abeoprs]|xapp|npm|pypi|dop_v1|hf|gsk|shpat|sq0\w{3})"
    r"[_-][\w-]{16,}|\b(?:sk|rk|pk|whsec)[_-][\w-]{16,}"
    r"|://hooks\.slack\.com/|://[\w.]*discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/"
    r"|^(?:Bearer\s+\S{8,}|Basic\s+[A-Za-z0-9+/=]{16,}$)",
    re.IGNORECASE,
)
_MAX_LOOKED_AT: Final = 64 * 1024


def looks_like_credential(name: str) -> bool:
    """Return whether a variable of this name probably holds a secret, or leads to one."""
    in_capitals = name.casefold().replace("\u0307", "").upper()  # the dot of a Turkish capital I
    return _CREDENTIAL_NAME.search(in_capitals) is not None and _HARMLESS.fullmatch(name) is None


def is_credential(name: str, value: str) -> bool:
    """Return whether a variable probably holds a secret, by its name or its value.

    A URL with a password is a secret whatever its variable's name is.
    """
    return looks_like_credential(name) or _VALUE.search(value[:_MAX_LOOKED_AT]) is not None


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


CHANNEL: Final = "RYE_CHANNEL"
"""The variable that names the pipe to which a tool writes its reports and questions."""

ANSWERS: Final = "RYE_ANSWERS"
"""The variable that names the pipe from which a tool reads the answers to its questions."""

_OF_ONE_CALL: Final = frozenset({CHANNEL, ANSWERS})


def may_inherit(name: str, rule: InheritEnv, value: str = "") -> bool:
    """Return whether a tool's process inherits a variable that no signed element names.

    The channel of a call is only that call's: what a tool starts doesn't hand it to other tools.
    """
    if name in _OF_ONE_CALL:
        return False
    if isinstance(rule, str):
        if rule == "all":
            return True
        return is_short_listed(name) if rule == "none" else not is_credential(name, value)
    return name in rule or not is_credential(name, value)


def without_project_entries(
    environ: Mapping[str, str], is_outside: Callable[[str], bool]
) -> tuple[dict[str, str], list[str]]:
    """Remove the entries of search paths that would load a project's unverified code.

    `is_outside` decides whether an absolute path may be searched. Returned are the environment
    without relative entries and those in the project, and the names of the changed variables.
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


_STEERING: Final = (
    # the loader, the C library and what graphical, media and parallel libraries load
    r"LD_\w*|DYLD_\w*|_?RLD\w*|SHLIB_PATH|LIBPATH|GCONV_PATH|GETCONF_DIR|LOCPATH"
    r"|NLSPATH|TEXTDOMAINDIR|TZDIR|GLIBC_\w*|MALLOC_\w*|HOSTALIASES|LOCALDOMAIN|RES_OPTIONS|NIX_\w*"
    r"|\w*SAN_OPTIONS|\w*SAN_SYMBOLIZER_PATH|OMP_TOOL\w*|OMPI_\w*|OPAL_\w*|PMIX_\w*|CUDA_INJECTION\w*"
    r"|OCL_ICD\w*|OPENCL_\w*|VK_\w*|LIBGL_\w*|LIBVA_\w*|MESA_\w*|EGL_\w*|GTK\w*|GDK_\w*|GIO_\w*|GI_\w*"
    r"|GST_\w*|QT_\w*|QML\w*|KDE\w*|FONTCONFIG_\w*|MAGICK_\w*|GDAL_\w*|PROJ_(?:LIB|DATA|CURL\w*|NETWORK\w*)|HDF5_\w*|FAKEROOT\w*"
    r"|\w*_PLUGIN_?PATH|\w*_PLUGINS?_DIR|\w*_MODULES?_(?:PATH|DIR)|\w*_LIB(?:RARY)?_PATH|\w*_PRELOAD"
    # interpreters, virtual machines, their package managers and frameworks
    r"|__?PYVENV\w*|PYTHON\w*|VIRTUALENV\w*|VIRTUAL_ENV\w*|PYENV\w*|CONDA\w*|MAMBA\w*|PIP_\w*|PIPX\w*"
    r"|PIPENV\w*|POETRY\w*|PDM_\w*|UV_\w*|HATCH_\w*|TOX_\w*|PYTEST\w*|PY_COLORS|COVERAGE_\w*|IPYTHON\w*"
    r"|JUPYTER\w*|SETUPTOOLS_\w*|DISTUTILS_\w*|DJANGO_SETTINGS\w*|FLASK_\w*|GUNICORN_\w*|UVICORN_\w*"
    r"|WERKZEUG_\w*|CELERY_CONFIG\w*|MPLBACKEND|MPLCONFIGDIR|MATPLOTLIB\w*"
    r"|NODE_\w*|NPM_\w*|NPX_\w*|NVM_\w*|YARN\w*|PNPM_\w*|COREPACK_\w*|TS_NODE\w*|TSX_\w*|ESBUILD_\w*"
    r"|DENO_\w*|BUN_\w*|ELECTRON_\w*|BABEL_\w*|WEBPACK_\w*|PLAYWRIGHT_\w*|PUPPETEER_\w*|CHROME_\w*"
    r"|RUBY\w*|GEM_\w*|BUNDLER?_\w*|RBENV\w*|RVM_\w*|IRBRC|RAKE\w*|PERL\w*|PAR_\w*|LUA\w*|PHP\w*|PHPRC"
    r"|COMPOSER\w*|TCL\w*|GUILE_\w*|PLT\w*|RACKET\w*|R_\w*|RSCRIPT\w*|JULIA\w*|OCAML\w*|CAML\w*|OPAM\w*"
    r"|GHC\w*|STACK_(?:ROOT|YAML|WORK|XDG)|CABAL_\w*|ERL_\w*|ERLANG_\w*|ELIXIR_\w*|MIX_\w*|HEX_\w*|SWIFT_\w*|AWKPATH"
    r"|AWKLIBPATH|JAVA(?!SCRIPT)\w*|_JAVA\w*|JDK\w*|JRE_\w*|JVM_\w*|CLASSPATH|MAVEN\w*|MVN\w*|M2_\w*|GRADLE\w*"
    r"|ANT_\w*|SBT_\w*|SCALA_\w*|KOTLIN_\w*|GROOVY_\w*|CATALINA_\w*|HADOOP_\w*|SPARK_\w*|DOTNET\w*"
    r"|CORECLR\w*|COR_\w*|COMPLUS_\w*|NUGET_\w*|MSBUILD\w*|MONO_\w*|WINE\w*"
    r"|GO(?:FLAGS|PATH|ROOT|PROXY|ENV|BIN|DEBUG|SUMDB|NOSUMDB|NOSUMCHECK|NOPROXY|PRIVATE|INSECURE|VCS"
    r"|AUTH|TOOLCHAIN|TOOLDIR|EXPERIMENT|WORK|CACHE|CACHEPROG|MODCACHE|TMPDIR|OS|ARCH|COVERDIR"
    r"|TRACEBACK)|CGO_\w*|CARGO\w*|RUST\w*"
    # compilers and what builds
    r"|CC|CXX|CPP|LD|AR|AS|NM|FC|F77|F90|RANLIB|STRIP|LEX|YACC|\w*_?(?:C|CPP|CXX|LD|F|FC|AR|AS)FLAGS"
    r"|\w*_LINKER|\w*_WRAPPER|\w*_LAUNCHER|\w*MAKEFLAGS|MFLAGS|MAKE|MAKE_\w*|MAKE(?:FILES?|LEVEL|SHELL)|CMAKE_\w*|CTEST_\w*|NINJA_\w*"
    r"|MESON_\w*|AUTOCONF|AUTOMAKE|AUTOM4TE|ACLOCAL\w*|M4\w*|LIBTOOL\w*|PKG_CONFIG\w*|GCC_\w*"
    r"|COMPILER_PATH|LIBRARY_PATH|CPATH|\w*_INCLUDE_PATH|CCACHE_\w*|SCCACHE_\w*|DISTCC_\w*|BAZEL\w*"
    r"|SCONS\w*|TEXINPUTS\w*|TEXMF\w*|BIBINPUTS|BSTINPUTS|\w*_OPTIONS|\w*_OPTS?|\w*_CMD_ARGS"
    # shells, pagers, editors and what they run
    r"|BASH\w*|ENV|SHELL\w*|IFS|PS[0-9]|PROMPT|PROMPT_COMMAND|CDPATH|ZDOTDIR|ZSH\w*|FISH_\w*|KSH\w*|GLOBIGNORE|GLOBSORT|FPATH"
    r"|FIGNORE|EXECIGNORE|HIST(?:FILE\w*|SIZE|CONTROL|IGNORE|TIMEFORMAT)|INPUTRC|FCEDIT|MAIL|MAILPATH|MAILRC|LESS(?!ON)\w*|MORE|MOST_\w*|\w*PAGER"
    r"|\w*EDITOR|VISUAL|\w*BROWSER|MAN(?:PATH|OPT|SECT|ROFFSEQ|ROFFOPT|LESS)|GROFF_\w*|INFOPATH|TERM|TERMCAP|TERMINFO\w*"
    r"|SCREENRC|SYSSCREENRC|TMUX\w*|FZF_\w*|RIPGREP_\w*|BAT_\w*|VIM\w*|MYVIMRC|EXINIT|NVIM_\w*|EMACS\w*"
    r"|GDB\w*|LLDB_\w*|DEBUGINFOD_\w*|BC_ENV_ARGS|DC_ENV_ARGS|\w*_ASKPASS|SUDO_\w*|PKEXEC_\w*"
    # version control, archives and transfers
    r"|GIT_\w*|GH_(?:HOST|PATH|CONFIG_DIR)|HG\w*|SVN_\w*|CVS\w*|BZR\w*|BRZ_\w*|DARCS_\w*|GNUPGHOME"
    r"|TAPE|GZIP|BZIP2?|XZ_\w*|ZSTD_\w*|ZIPOPT|UNZIP|UNZIPOPT|ZIPINFO\w*|RSYNC_\w*|RSH|\w*WGETRC|NETRC"
    r"|CURL\w*"
    # proxies and TLS
    r"|\w*_PROXY|SSL\w*|TLS_\w*|PGSSL\w*|\w*SSLMODE|\w*_CA_(?:BUNDLE|CERTS?|FILE|PATH)|\w*CAFILE"
    r"|\w*CACERTS?|\w*_(?:SSL|TLS|CERT)_(?:NO_)?VERIFY\w*|\w*VERIFY_(?:SSL|TLS|PEER)|\w*_INSECURE"
    r"|OPENSSL_\w*|GNUTLS_\w*|NSS_\w*|P11_\w*|PKCS11\w*|KRB5_\w*|SASL_\w*"
    # remote machines, containers, other people's servers
    r"|SSH_\w*|DOCKER_\w*|COMPOSE_\w*|CONTAINERS?_(?:HOST|CON\w*|SSHKEY|STORAGE\w*|REGISTRIES\w*)|PODMAN_\w*|BUILDAH_\w*|BUILDKIT_\w*|KUBE\w*|HELM_\w*"
    r"|VAGRANT_\w*|ANSIBLE_\w*|TF_(?!VAR_)\w*|TERRAFORM_\w*|TERRAGRUNT_\w*|PACKER_\w*|PULUMI_\w*|VAULT_ADDR"
    r"|AWS_(?:CONFIG_FILE|SHARED_CREDENTIALS_FILE|CONTAINER_\w*|EC2_\w*|WEB_IDENTITY_\w*)"
    r"|CLOUDSDK_\w*|GCE_METADATA\w*|AZURE_CONFIG_DIR|BOTO\w*|LIBVIRT_\w*|DISPLAY|WAYLAND_\w*|XAUTHORITY"
    r"|XENVIRONMENT|X\w*SEARCHPATH|XAPPLRESDIR|DBUS_\w*|SYSTEMD_\w*|PULSE_\w*|PSQLRC|PSQL_\w*"
    r"|PG(?:SERVICE\w*|SYSCONFDIR|PASSFILE)|MYSQL_(?:HOME|TEST\w*)|ODBC\w*|ORACLE_HOME|TNS_ADMIN"
    r"|REDISCLI_RCFILE|SQLITE_\w*|\w*_BASE_URL|\w*_API_BASE|\w*_ENDPOINT(?:_URL\w*)?|OLLAMA_HOST"
    # homes, the person, the search path and ryecore itself
    r"|HOME|USER|LOGNAME|PWD|OLDPWD|XDG_\w*|USERPROFILE|(?:LOCAL)?APPDATA|TMPDIR|TMP|TEMP|PATH"
    r"|RYE_\w*|USER_SPACE"
)  # fmt: skip
# Other names can be more than variables: bash runs BASH_FUNC_ls%% as `ls`.
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_NAMED: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


def is_variable_name(name: str) -> bool:
    """Return whether an environment variable may be called so."""
    return _VARIABLE_NAME.fullmatch(name) is not None


def may_set_from_dotenv(name: str) -> bool:
    """Return whether a project's `.env` may set a variable that was asked for or allowed."""
    return is_variable_name(name) and _steering_names().fullmatch(name) is None


@cache
def _steering_names() -> re.Pattern[str]:
    """Compile the names that are never set from a `.env`, where a `.env` or an option has any."""
    return re.compile(_STEERING, re.IGNORECASE)


def variables_named_in(value: object) -> frozenset[str]:
    """Return the variables that signed configuration names: `${NAME}`, `${NAME:-…}` or `$NAME`."""
    if isinstance(value, str):
        return frozenset(_NAMED.findall(value)) if "$" in value else frozenset()
    if isinstance(value, Mapping):
        return variables_named_in(list(value.values()))
    if isinstance(value, Sequence):
        return frozenset[str]().union(*map(variables_named_in, value))
    return frozenset()
