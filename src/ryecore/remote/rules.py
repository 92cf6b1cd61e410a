"""The rules of what travels to a node, and of the patterns that name more, without I/O.

Source: docs/design/remote.md#at-home; decision 66.
"""

import hashlib
import re
from fnmatch import translate
from typing import Final
from unicodedata import normalize

from ryecore.items.files import is_left_over
from ryecore.items.spaces import SKIPPED_FOLDERS
from ryecore.remote.protocol.snapshots import MAX_PATH_BYTES

__all__ = [
    "CONTENT_RULE",
    "INSPECTED_BYTES",
    "Pattern",
    "fold_name",
    "why_content_stays",
    "why_it_stays",
    "why_no_pattern",
]

INSPECTED_BYTES: Final = 64 * 1024
"""How much of the beginning of each file is searched for a private key or a credential."""

_MAX_PATTERN_CHARS: Final = 500

_FOLDERS: Final = {
    **dict.fromkeys(SKIPPED_FOLDERS, "is a cache, version control or installed packages"),
    **dict.fromkeys((".git", ".hg", ".svn", ".jj", ".bzr"), "is version control"),
    **dict.fromkeys(
        (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud", ".password-store",
         ".terraform"),
        "holds credentials",
    ),
}  # fmt: skip
_SECRET_NAMES: Final = re.compile(
    r"""
      id_(?:rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk|xmss)(?:[.\-_](?!pub$).*)? | identity
    | .*_(?:rsa|dsa|ecdsa|ed25519)
    | .*\.(?:pem|key|p8|p12|pfx|pkcs12|jks|jceks|keystore|ppk|kdbx?|agekey|secrets?|tfstate(?:\..*)?
            |tfvars|ovpn|gpg|pgp|asc|der|keytab|wallet|mobileprovision)
    | [._]netrc | \.pgpass | \.my\.cnf | \.mylogin\.cnf | \.npmrc | \.yarnrc | \.pypirc | \.gemrc
    | \.htpasswd | \.git-credentials | \.dockercfg | \.dockerconfigjson | \.boto | \.s3cfg
    | \.vault-token | \.vault_pass.* | \.bash_history | \.zsh_history | \.python_history
    | kubeconfig | .*\.kubeconfig | wp-config\.php
    | \.?credentials?(?:\.(?:json|ya?ml|toml|ini|txt|csv|db|xml|conf|cfg))?
    | \.?secrets?(?:[.\-_].*)?\.(?:json|ya?ml|toml|ini|txt|csv|xml|conf|cfg|properties)
    | \.?secrets?
    | \.?passwords?(?:\.(?:json|ya?ml|toml|ini|txt|csv|xml))? | passwd | shadow
    | client_secret.*\.json | .*service[-_]?account.*\.json | .*[-_.]credentials?\.json
    """,
    re.VERBOSE | re.DOTALL,
)
_ENVIRONMENT: Final = re.compile(r"\.env.*|.*\.env|\.flaskenv", re.DOTALL)
_SECRET_FOLDERS: Final = frozenset(
    {"secret", "secrets", ".secret", ".secrets", "credentials", "private"}
)
_ITEMS: Final = (".ai/tools/", ".ai/directives/", ".ai/knowledge/")
_IGNORABLE: Final = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]"
)
"""The characters that Unicode calls Default_Ignorable_Code_Point (DerivedCoreProperties.txt)."""

_OF_THE_MACHINE: Final = {
    ".ai/state": "is the state of runs here",
    ".ai/cache": "is a cache",
    ".ai/node": "is the folder of a node",
    ".ai/config/keys/signing": "holds private keys",
    ".ai/config/projects": "is about folders of this machine",
    ".ai/config/remotes": "is about this end",
}
_PRIVATE_KEY: Final = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\[nr])*"
    rb"(?:[A-Za-z0-9+/]{8}|(?:Proc-Type|Version|Comment|Hash): )"
    rb"|PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1[0-9A-Z]{20}|\xef\xbb\xbf?openssh-key-v1\0"
)
_CREDENTIAL: Final = re.compile(
    # Those whose form tells: of GitHub, npm, PyPI, Hugging Face, Slack, Google, Stripe, Anthropic,
    # OpenAI and AWS; and a line of a .netrc.
    rb"\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_[A-Za-z0-9_]{60}|\bnpm_[A-Za-z0-9]{36}\b"
    rb"|\bpypi-AgEIcHlwaS5vcmc|\bhf_[A-Za-z0-9]{34}\b|\bxox[baprs]-[0-9]{8,}-[A-Za-z0-9-]{10}"
    rb"|\bAIza[0-9A-Za-z_-]{35}\b|\b[rs]k_live_[A-Za-z0-9]{20}|\bsk-ant-[a-z0-9]+-[A-Za-z0-9_-]{40}"
    rb"|\bsk-proj-[A-Za-z0-9_-]{40}|(?i:aws_secret_access_key)[\"' ]*[=:]"
    rb"[\"' ]*[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])"
    rb"|(?m:^[ \t]*machine[ \t]+\S+\s+login[ \t]+\S+\s+password[ \t]+\S)"
)
_MARKS: Final = (
    b"PRIVATE KEY", b"PuTTY-User-Key", b"AGE-SECRET-KEY", b"openssh-key-v1", b"ghp_", b"gho_",
    b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"npm_", b"pypi-AgEI", b"hf_", b"xox", b"AIza",
    b"k_live_", b"sk-ant-", b"sk-proj-", b"cret_access_key", b"CRET_ACCESS_KEY", b"machine",
)  # fmt: skip
"""One of these stands in each of them: looking for all takes a hundredth of a search."""

CONTENT_RULE: Final = hashlib.sha256(
    _PRIVATE_KEY.pattern + _CREDENTIAL.pattern + b"%d" % INSPECTED_BYTES
).hexdigest()
"""The name of the rule of `why_content_stays`: what another rule found counts for nothing."""


def fold_name(name: str) -> str:
    """Return a name as file systems compare it that ignore case, or what shows nothing."""
    plain = name if name.isascii() else _IGNORABLE.sub("", normalize("NFD", name))
    return normalize("NFD", plain.casefold())


def why_it_stays(path: str, *, is_folder: bool = False) -> str | None:
    """Return why a file or folder never travels, by only its path, as the end of a sentence.

    Args:
        path: The path below the project's folder, or below the folder that holds `.ai`, with `/`.
        is_folder: Whether it is a folder. Items may lie in one that is named for secrets.

    Returns:
        The reason; None where its path gives none.
    """
    folded = path.casefold()
    for place, reason in _OF_THE_MACHINE.items():
        if f"/{place}/" in f"/{folded}/":  # also of a project or user space further down
            return reason
    *folders, name = folded.split("/")
    for one in (*folders, name):
        if one in _FOLDERS:
            return _FOLDERS[one]
        if _ENVIRONMENT.fullmatch(one):
            return "may hold variables that are secret"
    if not folded.startswith(_ITEMS):
        named = [one for one in (*folders, name) if one in _SECRET_FOLDERS]
        if named and (is_folder or named[0] != name):
            return "lies in a folder that is named for secrets"
    if not is_folder and _SECRET_NAMES.fullmatch(name):
        return "has the name of a key or secret"
    if is_left_over(name):
        return "was left behind by a write that was killed"
    return _why_unwritable(path)


def _why_unwritable(path: str) -> str | None:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "has a name that isn't Unicode"
    if size > MAX_PATH_BYTES:
        return f"has a path of more than {MAX_PATH_BYTES} bytes"
    if "\\" in path or not path.isprintable():
        return "has a backslash or an unprintable character in its name"
    return None


def why_content_stays(beginning: bytes) -> str | None:
    """Return why a file never travels, by the beginning of its content; None for no reason."""
    if not any(mark in beginning for mark in _MARKS):
        return None
    if _PRIVATE_KEY.search(beginning):
        return "has a private key in it"
    return "has a credential in it" if _CREDENTIAL.search(beginning) else None


# Patterns


def why_no_pattern(text: str) -> str | None:
    """Return why a text can't be a pattern of `push.include`; None where it can."""
    if not text or len(text) > _MAX_PATTERN_CHARS or not text.isprintable():
        return f"must be a pattern of at most {_MAX_PATTERN_CHARS} characters, such as src/**"
    parts = text.rstrip("/").split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in text:
        return "must be below the project's folder, without . and .., such as src/**"
    return None


class Pattern:
    """One pattern, matched part by part: `*` within a name, `**` over any number of folders."""

    __slots__ = ("_parts", "_takes_folders", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        parts = text.rstrip("/").split("/")
        self._takes_folders = not any(one in text for one in "*?[")
        self._parts = [
            None if part == "**" else re.compile(translate(part), re.DOTALL) for part in parts
        ]

    def begin(self) -> frozenset[int]:
        """Return the positions before the first name."""
        return self._skipped({0})

    def step(self, at: frozenset[int], name: str) -> frozenset[int]:
        """Return the positions behind a name."""
        behind: set[int] = set()
        for one in at:
            if one == len(self._parts):
                if self._takes_folders:
                    behind.add(one)
                continue
            part = self._parts[one]
            if part is None:
                behind.add(one)
            elif part.fullmatch(name):
                behind.add(one + 1)
        return self._skipped(behind)

    def is_met(self, at: frozenset[int]) -> bool:
        """Return whether what leads to these positions matches the whole pattern."""
        return len(self._parts) in at

    def _skipped(self, at: set[int]) -> frozenset[int]:
        found = set(at)
        for one in at:
            position = one
            while position < len(self._parts) and self._parts[position] is None:
                position += 1  # `**` also stands for no folder at all
                found.add(position)
        return frozenset(found)
