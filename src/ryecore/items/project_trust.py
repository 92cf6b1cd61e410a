"""Which projects the user trusts to bring their own interpreters.

Source: decision 21.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

import tomli_w

from ryecore.errors import RyeError
from ryecore.items.documents import parse_document
from ryecore.items.evidence import Evidence
from ryecore.items.refs import ItemRef
from ryecore.items.signing import write_signed
from ryecore.items.spaces import ItemSource, Space
from ryecore.items.verification import Verifier
from ryecore.lillux.keys import SigningKey

__all__ = ["is_project_trusted", "trust_project"]

_FOLDER: Final = "projects/trusted"


def _name_of(project: Path) -> str:
    digest = hashlib.sha256(os.fsencode(os.path.realpath(project))).hexdigest()[:32]
    return f"{_FOLDER}/{digest}.toml"


def _text_of(project: Path) -> str:
    """The project's real path as text, whatever bytes it has; `_name_of` tells it from others."""
    return os.fsencode(os.path.realpath(project)).decode(errors="backslashreplace")


def trust_project(user: Space, project: Path, key: SigningKey) -> Path:
    """Write, signed, that the user trusts a project's own interpreters.

    Args:
        user: The user's space.
        project: The project's folder.
        key: The user's key.

    Returns:
        The file that says so; removing it takes the trust back.

    Raises:
        SigningError: The file can't be written.
    """
    name = _name_of(project)
    content = tomli_w.dumps(
        {"version": "1.0.0", "category": _FOLDER, "path": _text_of(project)}
    ).encode()
    return write_signed(user, name, content, key)


def is_project_trusted(user: Space, project: Path, verifier: Verifier, evidence: Evidence) -> bool:
    """Whether the user trusts a project's own interpreters."""
    name = _name_of(project)
    path = user.folder("config") / name
    if not path.exists():
        evidence.absent(str(path))
        return False
    verifier = Verifier(verifier.trust)  # dev mode is for items, not for trust
    ref = ItemRef("config", name.removesuffix(".toml"))
    try:
        item = verifier.verify(ItemSource(ref, path, user, name), evidence)
        return parse_document(item.content, path).get("path") == _text_of(project)
    except RyeError:
        return False
