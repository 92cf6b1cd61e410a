"""Which model a name stands for. Pure.

`agent/agent.yaml`, signed:

    tiers:  {fast: acme/small, best: acme/large}
    models: {small: acme/small, large: [acme/large, other/large]}

Source: decision 32.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from attrs import evolve

from ryecore.convert.config import Configuration, Reader
from ryecore.convert.lines import quoted
from ryecore.errors import InputError
from ryecore.frozen import frozen

__all__ = ["AGENT_CONFIG", "ModelNames", "choose_model", "read_model_names"]

AGENT_CONFIG: Final = "agent/agent.yaml"
_MODEL: Final = re.compile(r"[A-Za-z0-9_.-]+/[^\s/]\S*")
_MAX_NAME: Final = 200


ModelNames = Mapping[str, tuple[str, ...]]
"""The models that each tier and each bare name stands for, as `provider/model`."""


def _read_models(value: object) -> tuple[str, ...]:
    models = value if isinstance(value, list) else [value]
    names = tuple(one for one in models if isinstance(one, str) and _MODEL.fullmatch(one))
    if len(names) < len(models):
        raise ValueError("must be provider/model, or a list of such")
    return names


_Section = Mapping[Annotated[str, Reader(str)], Annotated[tuple[str, ...], Reader(_read_models)]]


@frozen
class _AgentFile:
    tiers: _Section | None = None
    models: _Section | None = None


def read_model_names(config: Configuration) -> ModelNames:
    """Read the sections `tiers` and `models` of `agent/agent.yaml`; others are ignored."""
    values = {name: config.values[name] for name in ("tiers", "models") if name in config.values}
    file = evolve(config, values=values).read(_AgentFile)
    names: dict[str, tuple[str, ...]] = {}
    for section in (file.tiers or {}, file.models or {}):
        for name, models in section.items():
            names[name] = tuple(dict.fromkeys((*names.get(name, ()), *models)))
    return names


def choose_model(wanted: object, names: ModelNames) -> str:
    """Resolve the model that a caller or a directive asks for, as `provider/model`.

    `wanted` is that already, or a tier or bare name of `agent/agent.yaml`. An InputError names the
    candidates where it isn't a name, or stands for nothing, or for several.
    """
    if not isinstance(wanted, str) or not wanted.strip() or len(wanted) > _MAX_NAME:
        raise InputError("A model is named by text.", next_step="Pass provider/model or a tier.")
    if "/" in wanted:
        if _MODEL.fullmatch(wanted) is None or not wanted.isprintable():
            raise InputError(f"{quoted(wanted)} names no model.", next_step="Write provider/model.")
        return wanted
    found = names.get(wanted) or _ending_in(wanted, names)
    if len(found) == 1:
        return found[0]
    candidates = found or tuple(sorted(names))
    if found:
        raise InputError(
            f"{quoted(wanted)} stands for several models: {', '.join(found)}.",
            next_step="Write which one you mean.",
            candidates=candidates,
        )
    raise InputError(
        f"{quoted(wanted)} is neither a tier nor a model that {AGENT_CONFIG} names.",
        next_step=(
            f"It names {', '.join(candidates)}."
            if candidates
            else f"Write provider/model, or name it in .ai/config/{AGENT_CONFIG} and sign that."
        ),
        candidates=candidates,
    )


def _ending_in(name: str, names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the configured models whose own name, behind the provider's, this is."""
    models = (model for models in names.values() for model in models)
    return tuple(dict.fromkeys(model for model in models if model.partition("/")[2] == name))
