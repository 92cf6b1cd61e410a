"""Seal a bundle: sign all its items with a fresh key, keep the public half, forget the other.

    python -m ryecore.items.seal FOLDER...

Each folder holds an `.ai`. The public key stands in `.ai/config/keys/trusted/` afterwards, and
nothing else can ever be signed with its private half. The documents of the built-in bundle are
parsed into a table beside its `.ai`.

Source: decision 7.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from ryecore.errors import ItemNotFound, RyeError
from ryecore.items.bundled import DOCUMENTS_PATH, render_documents
from ryecore.items.documents import DOCUMENT_EXTENSIONS, parse_content
from ryecore.items.files import write_atomically
from ryecore.items.metadata import parse_metadata, parse_python
from ryecore.items.refs import KIND_FOLDERS
from ryecore.items.signature import CommentForm, utc_now
from ryecore.items.signing import find_files, sign_content, sign_file
from ryecore.items.spaces import Space
from ryecore.items.trust import TRUSTED_KEYS_PATH, render_trusted_key
from ryecore.lillux.keys import PublicKey, SigningKey

__all__ = ["parsed_documents", "seal_bundle"]


def seal_bundle(root: Path, owner: str) -> tuple[PublicKey, int]:
    """Sign every item of a bundle with a throwaway key."""
    key, now = SigningKey.generate(), utc_now()
    space = Space("system", root)
    keys = space.folder("config") / TRUSTED_KEYS_PATH
    for old in keys.glob("*.toml") if keys.is_dir() else ():
        old.unlink()
    signed, file_types = 0, _file_types(space)
    for kind in KIND_FOLDERS:
        try:
            files = find_files(space, f"{kind}:*")
        except ItemNotFound:
            continue
        for _, path, relative in files:
            sign_file(path, kind, relative, key, timestamp=now, file_types=file_types)
            signed += 1
    name = f"{TRUSTED_KEYS_PATH}/{key.public.fingerprint}.toml"
    content = render_trusted_key(key.public, owner, space=space.label)
    keys.mkdir(parents=True, exist_ok=True)
    write_atomically(
        space.folder("config") / name,
        sign_content(content, ".toml", "config", name, key, timestamp=now)[0],
    )
    return key.public, signed


def _file_types(space: Space) -> dict[str, CommentForm]:
    """Return the comment forms of the bundle's own runtimes, read before they are signed."""
    found: dict[str, CommentForm] = {}
    for path in space.folder("tool").rglob("*.yaml"):
        declared = parse_metadata(path.read_bytes(), path).get("file_types")
        if isinstance(declared, dict):
            found |= {extension: CommentForm.of(token) for extension, token in declared.items()}
    return found


def parsed_documents(root: Path) -> bytes:
    """Return the table of all documents below a folder, and of the metadata of Python tools."""
    readers = {**dict.fromkeys(DOCUMENT_EXTENSIONS, parse_content), ".py": parse_python}
    parsed: dict[tuple[bytes, str], dict[str, object]] = {}
    for path in sorted(root.rglob("*")):
        if path.suffix in readers:
            content = path.read_bytes()
            parsed[content, path.suffix] = readers[path.suffix](content, path)
    return render_documents(parsed)


def main(arguments: Sequence[str]) -> int:
    """Seal each folder that is named, and print the results."""
    if not arguments:
        print("usage: python -m ryecore.items.seal FOLDER...", file=sys.stderr)
        return 2
    for folder in arguments:
        root = Path(folder).resolve() / ".ai"
        if not root.is_dir():
            print(f"{folder}: no .ai folder to seal")
            continue
        try:
            key, signed = seal_bundle(root, owner=root.parent.name)
            if root.parent == DOCUMENTS_PATH.parent:
                write_atomically(DOCUMENTS_PATH, parsed_documents(root))
        except RyeError as error:
            print(f"{folder}: {error}", file=sys.stderr)
            return 1
        print(f"{folder}: {signed} files sealed with the key {key.fingerprint}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
