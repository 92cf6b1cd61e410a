"""Opening a connection to a PostgreSQL server, with the settings that the store needs.

Source: decisions 38 and 77; ADR 039.
"""

import re
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ryecore.lillux.processes import current_process
from ryecore.state.owners import host_name
from ryecore.state.postgres.address import PostgresAddress, address_refused

__all__ = ["connect"]

_CONNECT_S: Final = 10
_KEEPALIVES: Final = {
    # A connection that the network has cut is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SETTINGS: Final = {
    "lock_timeout": "30s",
    # A process that was stopped within a transaction would else keep all others from writing.
    "idle_in_transaction_session_timeout": "15s",
}

_SPACING: Final = re.compile(r"[\\\s]")
"""The characters that separate the options of a connection."""


def connect(address: PostgresAddress, place: str) -> "psycopg.Connection[Any]":
    """Return a new connection to the schema of an address, which the caller closes.

    Args:
        address: The address.
        place: What tells this place's changes from those of others.
    """
    try:
        given = conninfo_to_dict(address.url)
    except psycopg.ProgrammingError:  # whose text may have a part of the password
        raise address_refused("the driver can't read it") from None
    ours = {
        **_SETTINGS,
        "search_path": address.schema,
        "ryecore.place": place,
        "ryecore.boot": current_process().boot_id,
        "ryecore.host": _SPACING.sub(r"\\\g<0>", host_name()),
    }
    options = " ".join(f"-c {name}={value}" for name, value in ours.items())
    named: dict[str, Any] = {
        "connect_timeout": _CONNECT_S,
        "fallback_application_name": "ryecore",
        **_KEEPALIVES,
        **given,
        "options": f"{given.get('options') or ''} {options}".strip(),
    }
    return psycopg.connect(autocommit=True, **named)
