"""The arguments of a call: the model's, and the ones that the host sets.

Source: decision 54.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from ryecore.lillux.schema import UNDECIDED, SchemaValidator
from ryecore.strict_json import STRICT_DECODER
from ryecore.tools.failures import invalid_arguments

__all__ = ["check_arguments", "hide_config", "parse_arguments", "unfit_config"]


_TOP: Final = re.compile(r"[.\[]")


def parse_arguments(tool_name: str, text: str, max_bytes: int) -> dict[str, Any]:
    """Parse the arguments of a model, a JSON object. An empty text means no arguments."""
    if not text:
        return {}
    # A character has at most four bytes, so the size of a short text needn't be counted.
    if len(text) * 4 > max_bytes and (
        len(text) > max_bytes or len(text.encode("utf-8", errors="surrogatepass")) > max_bytes
    ):
        raise invalid_arguments(tool_name, f"they are larger than {max_bytes:,} bytes")
    bare = text.strip(" \t\n\r")
    try:
        found, end = STRICT_DECODER.raw_decode(bare)  # takes half the time of decode
        if end != len(bare):
            found = STRICT_DECODER.decode(bare)  # which reports the error
    except RecursionError:
        problem = "they are nested too deeply"
    except ValueError as error:
        problem = f"they aren't JSON ({str(error)[:200]})"
    else:
        if type(found) is dict:
            return cast("dict[str, Any]", found)
        problem = "they are JSON, but not an object"
    raise invalid_arguments(tool_name, problem)


async def check_arguments(tool_name: str, text: str, schema: SchemaValidator) -> None:
    """Check the text of arguments against a schema; the error lists every failing path."""
    try:
        listed = tuple(map(str, await schema.failures_async(text or "{}")))
    except ValueError as error:
        listed = (f"they aren't JSON ({str(error)[:200]})",)
    if listed:
        raise invalid_arguments(tool_name, *listed)


def hide_config(parameters: Mapping[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema for a model: without the properties that the host sets."""
    seen: dict[str, Any] = {"type": "object", "properties": {}, **parameters}
    if config:
        seen["properties"] = {
            name: part for name, part in seen["properties"].items() if name not in config
        }
        required = [name for name in seen.get("required", ()) if name not in config]
        seen.pop("required", None)
        if required:
            seen["required"] = required
    return seen


def unfit_config(config: Mapping[str, Any], schema: SchemaValidator) -> list[str]:
    """Return the names, never the values, of a host's arguments that don't fit a schema."""
    try:
        failures = schema.failures(json.dumps(config, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return [name for name, value in config.items() if not _is_json(value)] or sorted(config)
    if UNDECIDED in failures:
        return sorted(config)
    at_fault = {_TOP.split(failure.path, maxsplit=1)[0] for failure in failures}
    return sorted(at_fault & config.keys())


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
