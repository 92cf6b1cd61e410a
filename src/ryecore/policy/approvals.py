"""The one rule for what an approval covers: exactly this call of exactly this tool.

Source: decision 81.
"""

import json
from collections.abc import Mapping
from typing import Any

from ryecore.convert.json_text import make_encoder
from ryecore.lillux.digests import sha256_hex

__all__ = ["call_digest"]

_encode = make_encoder()


def call_digest(tool_name: str, tool_digest: str, arguments: Mapping[str, Any]) -> str:
    """Return the digest of a call that is approved: the tool, by its digest, and the arguments.

    The arguments count as JSON, whatever their order: `1`, `1.0` and `true` differ.
    """
    text = json.dumps(dict(arguments), sort_keys=True)
    return sha256_hex(_encode([tool_name, tool_digest, text]).encode())
