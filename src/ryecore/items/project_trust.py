"""The user's permissions for one project: its own interpreters, and names of its `.env`.

Source: decisions 19 and 21.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from ryecore.errors import RyeError
from ryecore.items.documents import parse_document
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import ItemSource, Space, project_digest
from ryecore.items.verification import Verifier
from ryecore.lillux.keys import SigningKey
from ryecore.lillux.witness import Evidence

__all__ = ["allow_variables", "allowed_variables", "is_project_trusted", "trust_project"]

_TRUSTED: Final = "projects/trusted"
_VARIABLES: Final = "projects/env"


def _name_of(folder: str, project: Path) -> str:
    return f"{folder}/{project_digest(project)}.toml"


def _text_of(project: Path) -> str:
    """Return the project's real path as text, with escapes for bytes that aren't UTF-8."""
    return os.fsencode(os.path.realpath(project)).decode(errors="backslashreplace")


def trust_project(user: Space, project: Path, key: SigningKey) -> Path:
    """Write and sign that the user trusts a project's own interpreters. Removal revokes it."""
    return _write(user, _TRUSTED, project, {}, key)


def is_project_trusted(user: Space, project: Path, verifier: Verifier, evidence: Evidence) -> bool:
    """Return whether the user trusts a project's own interpreters."""
    return _read(user, _TRUSTED, project, verifier, evidence) is not None


def allow_variables(user: Space, project: Path, names: Collection[str], key: SigningKey) -> Path:
    """Write and sign the names of a project's `.env` that are always set, in place of earlier ones.

    Other names are set only where a signed element asks for them. Removing the file revokes it.
    """
    return _write(user, _VARIABLES, project, {"names": sorted(names)}, key)


def allowed_variables(
    user: Space, project: Path, verifier: Verifier, evidence: Evidence
) -> frozenset[str]:
    """Return the names of a project's `.env` that the user allowed."""
    names = (_read(user, _VARIABLES, project, verifier, evidence) or {}).get("names")
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _write(
    user: Space, folder: str, project: Path, facts: Mapping[str, object], key: SigningKey
) -> Path:
    document = {"version": "1.0.0", "category": folder, "path": _text_of(project), **facts}
    # Trust is read far more often than written.
    import tomli_w  # noqa: PLC0415

    from ryecore.items.signing import write_signed  # noqa: PLC0415

    return write_signed(user, _name_of(folder, project), tomli_w.dumps(document).encode(), key)


def _read(
    user: Space, folder: str, project: Path, verifier: Verifier, evidence: Evidence
) -> Mapping[str, object] | None:
    """Read the user's file about a project; None where it is missing or doesn't verify."""
    name = _name_of(folder, project)
    path = user.folder("config") / name
    if not path.exists():
        evidence.absent(str(path))
        return None
    verifier = Verifier(verifier.trust)  # dev mode is for items, not for trust
    ref = ItemRef("config", name.removesuffix(".toml"))
    try:
        item = verifier.verify(ItemSource(ref, path, user, name), evidence)
        document = parse_document(item.content, path)
    except RyeError:
        return None
    return document if document.get("path") == _text_of(project) else None
