"""The address of a queue: the state that caller and workers share, and the queue's name in it.

Source: docs/design/queues.md.
"""

import re
from typing import Final, Self
from urllib.parse import urlsplit

from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.state.postgres.address import (
    PASSWORD_OPTIONS,
    PostgresAddress,
    join_url,
    read_options,
    write_options,
)

__all__ = ["DEFAULT_QUEUE", "RAY_QUEUE", "QueueAddress", "is_queue_name"]

DEFAULT_QUEUE: Final = "default"

RAY_QUEUE: Final = "ray:"
"""What the queue of a Ray cluster begins with in the rows of its runs; its name follows."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


def is_queue_name(text: str) -> bool:
    """Return whether a text can be the name of a queue."""
    return _NAME.fullmatch(text) is not None


@frozen
class QueueAddress:
    """The address of a queue.

    Attributes:
        state: The state that has its runs.
        name: The queue's name.
    """

    state: PostgresAddress
    name: str

    @classmethod
    def parse(cls, value: object) -> Self:
        """Parse a URL such as `postgresql://user@host/database?schema=acme&queue=batch`.

        Raises:
            ValueError: It isn't one, as the end of a sentence about it.
        """
        if not isinstance(value, str):
            raise ValueError("must be the address of a state, such as postgresql://db.example/rye")
        try:
            parts = urlsplit(value)
            state = PostgresAddress.parse(value)
            options = read_options(parts.query)
        except (RyeError, ValueError):
            raise ValueError(
                "must be the address of a state, such as postgresql://db.example/rye?queue=batch"
            ) from None
        if parts.password is not None or PASSWORD_OPTIONS & dict(options).keys():
            raise ValueError(
                "has a password, which belongs in ~/.pgpass or PGPASSWORD: many may read this file"
            )
        name = dict(options).get("queue", DEFAULT_QUEUE)
        if not is_queue_name(name):
            raise ValueError("has a queue whose name isn't of letters, digits, _ and -")
        query = write_options([one for one in options if one[0] != "queue"])
        plain = join_url(parts.scheme, parts.netloc, parts.path, query)
        return cls(PostgresAddress.parse(plain) if query != parts.query else state, name)

    def __str__(self) -> str:
        return f"{self.state.shown}, queue {self.name}"
