"""The commands `rye keys` and `rye trust-project`: trusted signers and interpreters."""

import getpass
from pathlib import Path

import click

from ryecore.cli.groups import HintedGroup
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import show, show_done, show_json
from ryecore.display.text import StyledText
from ryecore.errors import SigningError
from ryecore.items.documents import parse_document
from ryecore.items.trust import ListedKey
from ryecore.lillux.keys import PublicKey
from ryecore.rye import Rye

__all__ = ["keys", "read_public_key", "trust_project"]


@click.group(cls=HintedGroup, short_help="Make your signing key, and choose whose keys you trust.")
def keys() -> None:
    """Make your signing key, and choose whose keys you trust."""


@keys.command()
@click.option("--owner", default="", help="Whose key it is; your login name by default.")
@json_option
def generate(owner: str, as_json: bool) -> None:
    """Make your signing key and trust it in your user space."""
    author = Rye.open(".").keys
    key = author.generate(owner or _login())
    fingerprint, folder = key.public.fingerprint, author.folder
    show_done(
        f"key {fingerprint} made in {folder}; it is trusted in user space",
        {"fingerprint": fingerprint, "path": str(folder)},
        as_json=as_json,
    )


@keys.command("list")
@project_option
@json_option
def list_keys(project_path: str, as_json: bool) -> None:
    """List all keys, and whether they are trusted."""
    listed = Rye.open(project_path).trust.listed()
    if as_json:
        show_json({"status": "success", "keys": [_key_fields(one) for one in listed]})
        return
    text = StyledText()
    owner_width = max((len(one.owner) for one in listed), default=0)
    for one in listed:
        until = f"  until {one.not_after}" if one.not_after else ""
        text.line(
            (one.key.fingerprint, "id"),
            (f"  {one.status:<9}", "good" if one.status == "trusted" else "warn"),
            f"  {one.space:<7}  {one.owner:<{owner_width}}",
            (f"{until}  {one.path or ''}", "dim"),
        )
    if not listed:
        text.line("no key is trusted yet; make yours with: rye keys generate")
    show(text)


def _key_fields(one: ListedKey) -> dict[str, object]:
    return {
        "fingerprint": one.key.fingerprint,
        "owner": one.owner,
        "space": one.space,
        "status": one.status,
        "path": str(one.path) if one.path else None,
        "not_after": one.not_after,
        "reason": one.reason or None,
    }


@keys.command()
@click.argument("key_file", metavar="PUBLIC_KEY.pem|KEY.toml", type=click.Path(dir_okay=False))
@click.option("--owner", default="", help="Whose key it is.")
@click.option("--not-after", metavar="UTC", help="When it expires, such as 2027-01-31T00:00:00Z.")
@click.option("--revoke", is_flag=True, help="Revoke the key: nothing that it signed is trusted.")
@click.option("--in-project", is_flag=True, help="Trust it only in this project's folder.")
@click.option("--reinstate", is_flag=True, help="Trust it again although it was revoked.")
@project_option
@json_option
def trust(
    key_file: str,
    owner: str,
    not_after: str | None,
    revoke: bool,
    in_project: bool,
    reinstate: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Trust somebody's public key: what it signs may run here."""
    opened = Rye.open(project_path)
    key, found_owner = read_public_key(Path(key_file))
    if not (owner := owner or found_owner):
        # A project's file could claim any owner.
        own = [one for one in opened.trust.listed() if one.space == "user"]
        owner = next((one.owner for one in own if one.key == key), "")
    path = opened.keys.trust(
        key,
        owner,
        space=opened.spaces.project if in_project else None,
        not_after=not_after,
        revoked=revoke,
        reinstate=reinstate,
    )
    show_done(
        f"key {key.fingerprint} is {'revoked' if revoke else 'trusted'}: {path}",
        {"fingerprint": key.fingerprint, "path": str(path)},
        as_json=as_json,
    )


@click.command("trust-project", short_help="Trust a project's own interpreters.")
@project_option
@json_option
def trust_project(project_path: str, as_json: bool) -> None:
    """Trust a project's own interpreters, such as its .venv/bin/python."""
    opened = Rye.open(project_path)
    path = opened.trust_project()
    show_done(
        f"interpreters inside {opened.project} may run; to take that back, remove {path}",
        {"project": str(opened.project), "path": str(path)},
        as_json=as_json,
    )


def read_public_key(path: Path) -> tuple[PublicKey, str]:
    """Read a public key from its PEM, or from a key file with its owner."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise SigningError(
            f"{path} can't be read: {problem.strerror}.",
            next_step="Name the file of a public key. rye keys list shows the file of each key.",
        ) from None
    pem, owner = content, ""
    if path.suffix == ".toml":
        document = parse_document(content, path)
        table = document.get("public_key")
        pem = str(table.get("pem") if isinstance(table, dict) else None).encode()
        owner = str(document.get("owner", ""))
    try:
        return PublicKey.from_pem(pem), owner
    except SigningError as problem:
        raise SigningError(
            f"{path} holds no public key: {problem.message}",
            next_step="Name a public_key.pem, or the .toml file of a trusted key.",
        ) from None


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
