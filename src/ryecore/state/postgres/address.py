"""The address of a state on PostgreSQL, which is never written where it shows the password.

Source: docs/how-to/share-state-on-postgresql.md.
"""

import re
from collections.abc import Iterable
from typing import Final, Self
from urllib.parse import quote, unquote, urlencode, urlsplit

from attrs import field

from ryecore.errors import ConfigError
from ryecore.frozen import frozen

__all__ = [
    "PASSWORD_OPTIONS",
    "PostgresAddress",
    "address_refused",
    "join_url",
    "read_options",
    "write_options",
]

_SCHEMES: Final = ("postgresql", "postgres")
_SCHEMA: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")  # pg_ is the server's own
_DEFAULT_SCHEMA: Final = "ryecore"
_PORT: Final = 5432

PASSWORD_OPTIONS: Final = frozenset({"password", "sslpassword"})
"""The options behind the `?` that hold a password."""


@frozen
class PostgresAddress:
    """The address of one project's state.

    Attributes:
        url: The URL for the driver, with the password if it has one.
        schema: The schema of the tables.
        shown: The address for people, without the password and the options.
    """

    url: str = field(repr=False)
    schema: str
    shown: str

    @property
    def place(self) -> tuple[object, ...]:
        """What is the same of all addresses of one schema, whoever uses it and however."""
        parts = urlsplit(self.url)
        host = parts.hostname or dict(read_options(parts.query)).get("host", "")
        return (host, parts.port or _PORT, parts.path, self.schema)

    @property
    def without_password(self) -> str:
        """The whole address without the password, for `parse` in another process."""
        parts = urlsplit(self.url)
        user, _, host = parts.netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}@{host}" if user else host
        kept = [one for one in read_options(parts.query) if one[0] not in PASSWORD_OPTIONS]
        query = write_options([*kept, ("schema", self.schema)])
        return join_url(parts.scheme, netloc, parts.path, query)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL such as `postgresql://user@host/database?schema=acme`.

        Raises:
            ConfigError: It isn't one. The message doesn't repeat it.
        """
        try:
            parts = urlsplit(url)
            host, port, user = parts.hostname or "", parts.port, parts.username
            options = read_options(parts.query)
        except ValueError:
            raise address_refused("it isn't a URL") from None
        if parts.scheme not in _SCHEMES:
            raise address_refused("it begins with another scheme")
        schema = dict(options).get("schema", _DEFAULT_SCHEMA)
        if not _SCHEMA.fullmatch(schema):
            raise address_refused(f"{schema!r} can't be the name of a schema")
        query = write_options([one for one in options if one[0] != "schema"])
        where = f"{user}@{host}" if user else host
        shown = f"postgresql://{where}{f':{port}' if port else ''}{parts.path} (schema {schema})"
        plain = join_url(parts.scheme, parts.netloc, parts.path, query)
        return cls(plain, schema, shown)


def read_options(query: str) -> list[tuple[str, str]]:
    """Return the options behind the `?`, as libpq reads them: a plus sign is one, not a space."""
    pairs = (one.partition("=") for one in query.split("&") if one)
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def write_options(options: Iterable[tuple[str, str]]) -> str:
    """Return options for behind the `?`, as libpq reads them."""
    return urlencode([*options], quote_via=quote, safe="")


def join_url(scheme: str, netloc: str, path: str, query: str) -> str:
    """Return a URL of its parts; without a host it keeps the slashes, which `urlunsplit` drops."""
    return f"{scheme}://{netloc}{path}{'?' if query else ''}{query}"


def address_refused(why: str) -> ConfigError:
    """Return the error for an address that can't be used, which doesn't repeat it."""
    return ConfigError(
        f"The address of the state can't be used: {why}.",
        next_step="Write postgresql://USER@HOST/DATABASE, with ?schema=NAME for a schema of its "
        "own; the password in it, in ~/.pgpass or in PGPASSWORD.",
    )
