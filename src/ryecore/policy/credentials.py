"""Which names of variables look like credentials. Source: decision 20."""

import re
from typing import Final

__all__ = ["looks_like_credential"]

_CREDENTIAL: Final = re.compile(
    r"API_?KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|ACCESS_KEY|PRIVATE_KEY|SIGNING_KEY(?!_DIR)"
    r"|CONNECTION_STRING|_DSN$|_AUTH$|_PAT$|^DATABASE_URL$|^[A-Z_]*_KEY$",
    re.IGNORECASE,
)


def looks_like_credential(name: str) -> bool:
    """Whether a variable of this name probably holds a secret."""
    return _CREDENTIAL.search(name) is not None
