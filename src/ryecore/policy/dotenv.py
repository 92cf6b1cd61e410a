"""The names that a project's `.env` may set at all. Pure.

A name that steers a program, or the place where its code comes from, is never set, even where a
signed element asks for it.

Source: decision 19.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["is_variable_name", "may_set_from_dotenv", "variables_named_in"]

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
_NEVER: Final = re.compile(_STEERING, re.IGNORECASE)
# Other names can be more than variables: bash runs BASH_FUNC_ls%% as `ls`.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_NAMED: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


def is_variable_name(name: str) -> bool:
    """Return whether an environment variable may be called so."""
    return _NAME.fullmatch(name) is not None


def may_set_from_dotenv(name: str) -> bool:
    """Return whether a project's `.env` may set a variable that was asked for or allowed."""
    return is_variable_name(name) and _NEVER.fullmatch(name) is None


def variables_named_in(value: object) -> frozenset[str]:
    """Return the variables that the strings of signed configuration refer to.

    Args:
        value: A string, or lists and mappings of strings: `${NAME}`, `${NAME:-…}` or `$NAME`.
    """
    if isinstance(value, str):
        return frozenset(_NAMED.findall(value)) if "$" in value else frozenset()
    if isinstance(value, Mapping):
        return variables_named_in(list(value.values()))
    if isinstance(value, Sequence):
        return frozenset[str]().union(*map(variables_named_in, value))
    return frozenset()
