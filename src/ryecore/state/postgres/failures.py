"""The errors of a PostgreSQL server, and of connections to it, as errors of the store.

Source: decision 77.
"""

from typing import Final

import psycopg
from psycopg import errors

from ryecore.errors import InputError, RyeError, StateError, StateUnreachable

__all__ = ["failure_of"]

_CONNECTION_CODES: Final = ("", "08", "3D", "53", "57")
"""What begins the codes of a server that is away, full or stopping; "" where none answered."""


def failure_of(shown: str, done: str, problem: psycopg.Error) -> RyeError:
    """Return the error for a failed statement or connection; no text of it has a password."""
    told = problem.diag.message_primary or str(problem).strip().partition("\n")[0]
    failed = f"{shown} can't be {done}: {told.rstrip('.') or type(problem).__name__}."
    code = problem.sqlstate or ""
    if "authentication failed" in told or "no password supplied" in told or code[:2] == "28":
        return StateUnreachable(
            failed, next_step="See the user and the password: in the address, PGPASSWORD, ~/.pgpass"
        )
    if 'database "' in told and "does not exist" in told:
        return StateUnreachable(failed, next_step="Make it (createdb), or name another one.")
    if isinstance(problem, psycopg.DataError) and not code:  # before the server saw it
        return InputError(failed, next_step="Leave out what no text in PostgreSQL may hold.")
    if isinstance(problem, errors.LockNotAvailable):
        return StateError(failed, next_step="Another process writes for too long: try again.")
    if isinstance(problem, errors.QueryCanceled):
        return StateUnreachable(
            failed, next_step="Another process may write for too long: try again."
        )
    if isinstance(problem, errors.InsufficientPrivilege):
        return StateError(
            failed, next_step="Let the user create a schema, or make one that the user owns."
        )
    if isinstance(problem, psycopg.OperationalError) and code[:2] in _CONNECTION_CODES:
        return StateUnreachable(
            failed, next_step="See that the server runs, and can be reached from here with psql."
        )
    return StateError(failed, next_step="See the log of the server.")
