"""The host of a URL, and whether it is listed. Pure."""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

__all__ = ["Target", "check_domain", "is_listed", "target_of"]

_LABELS: Final = re.compile(
    r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*")
_PORTS: Final = {"http": 80, "https": 443}
_ENTRY: Final = re.compile(r"(?:(\*)\.)?(\[[0-9A-Fa-f:.]+\]|[^\[\]:*/@]+)(?::(\d{1,5}))?")


@frozen
class Target:
    """The target of a URL.

    Its host is a name in lower case without a final dot, or an address in its one usual form.
    `port` is None for the scheme's own.
    """

    host: str
    port: int | None
    is_address: bool


def target_of(url: object) -> Target:
    """Return the target of a URL of http or https that can't be read in two ways."""
    if not isinstance(url, str):
        raise ValueError("it isn't text")
    if not url.isascii():
        raise ValueError("it holds other characters than ASCII; write them percent-encoded, xn--")
    if any(character <= " " or character in "\\\x7f" for character in url):
        raise ValueError("it holds a space, a control character or a backslash")
    parts = urlsplit(url)  # its ValueErrors name no more than parts of the URL
    if parts.scheme not in _PORTS or not url[len(parts.scheme) :].startswith("://"):
        raise ValueError("it isn't a URL of http or https")
    if "@" in parts.netloc:
        raise ValueError("it holds a user's name")
    host, is_address = _host(parts.hostname or "")
    if parts.netloc.startswith("[") and ":" not in host:
        raise ValueError("its address isn't valid")
    port = parts.port
    if parts.netloc.endswith(":"):
        raise ValueError("its port is empty")
    return Target(host, None if port == _PORTS[parts.scheme] else port, is_address)


def check_domain(entry: str) -> str:
    """Check and return an entry of a list of domains: a name, `*.` and a name, or an address."""
    _split(entry)
    return entry


def is_listed(target: Target, listed: Iterable[str]) -> bool:
    """Return whether a host is listed: exactly, or below `*.name`, which is never an address."""
    return any(_matches(target, *_split(entry)) for entry in listed)


def _matches(target: Target, is_suffix: bool, host: str, port: int | None) -> bool:
    if target.port != port:
        return False
    if is_suffix:
        return not target.is_address and target.host.endswith(f".{host}")
    return target.host == host


def _split(entry: str) -> tuple[bool, str, int | None]:
    found = _ENTRY.fullmatch(entry) if entry.isascii() else None
    if found is None:
        raise ValueError(
            f"{entry!r} isn't a host: write example.org, *.example.org or example.org:8443, "
            "and other characters than ASCII as xn--."
        )
    try:
        host, is_address = _host(found[2].strip("[]").lower())
    except ValueError as error:
        raise ValueError(f"{entry!r} isn't a host: {error}.") from None
    if found[1] and is_address:
        raise ValueError(f"{entry!r} isn't a host: an address has no subdomains.")
    return bool(found[1]), host, int(found[3]) if found[3] else None


def _host(host: str) -> tuple[str, bool]:
    """Return the one usual form of a host, and whether it is an address.

    An address in a form that readers take differently is refused.
    """
    if ":" in host:
        if "%" in host:
            raise ValueError("its address names a network interface")
        try:
            return str(ip_address(host)), True
        except ValueError:
            raise ValueError("its address isn't valid") from None
    name = host[:-1] if host.endswith(".") else host
    if _LABELS.fullmatch(name) is None or len(name) > 253:
        raise ValueError("its host isn't a valid name")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        try:
            return str(ip_address(host)), True
        except ValueError:
            raise ValueError("its host is an address in an unusual form") from None
    return name, False
