"""Which model a name stands for. Pure.

`agent/agent.yaml`, signed:

    tiers:  {fast: acme/small, best: acme/large}
    models: {small: acme/small, large: [acme/large, other/large]}

Source: decision 32.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ryecore.errors import ConfigError, InputError

__all__ = ["AGENT_CONFIG", "choose_model"]

AGENT_CONFIG: Final = "agent/agent.yaml"
_MODEL: Final = re.compile(r"[A-Za-z0-9_.-]+/[^\s/]\S*")
_MAX_NAME: Final = 200


def choose_model(wanted: object, config: Mapping[str, object]) -> str:
    """Resolve what a caller or a directive asks for.

    Args:
        wanted: `provider/model`, which is taken as it is, else a tier or a bare name.
        config: What `agent/agent.yaml` holds, all layers merged.

    Returns:
        The model as `provider/model`.

    Raises:
        InputError: It is no name, stands for nothing, or for several; with the candidates.
        ConfigError: The configuration has another form.
    """
    if not isinstance(wanted, str) or not wanted.strip() or len(wanted) > _MAX_NAME:
        raise InputError("A model is named by text.", next_step="Pass provider/model or a tier.")
    if "/" in wanted:
        if _MODEL.fullmatch(wanted) is None or not wanted.isprintable():
            raise InputError(f"{wanted!r} names no model.", next_step="Write provider/model.")
        return wanted
    names = dict(_names(config))
    found = names.get(wanted) or _ending_in(wanted, names)
    if len(found) == 1:
        return found[0]
    candidates = found or tuple(sorted(names))
    if found:
        raise InputError(
            f"{wanted!r} stands for several models: {', '.join(found)}.",
            next_step="Write which one you mean.",
            candidates=candidates,
        )
    raise InputError(
        f"{wanted!r} is no tier and no model that {AGENT_CONFIG} names.",
        next_step=(
            f"It names {', '.join(candidates)}."
            if candidates
            else f"Write provider/model, or name it in .ai/config/{AGENT_CONFIG} and sign that."
        ),
        candidates=candidates,
    )


def _names(config: Mapping[str, object]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every tier and name with the models that it stands for."""
    found: dict[str, dict[str, None]] = {}
    for section in ("tiers", "models"):
        declared = config.get(section) or {}
        if not isinstance(declared, Mapping):
            raise _misconfigured(section)
        for name, models in declared.items():
            listed = models if isinstance(models, list) else [models]
            for model in listed:
                if not isinstance(model, str) or _MODEL.fullmatch(model) is None:
                    raise _misconfigured(f"{section}.{name}")
                found.setdefault(str(name), {})[model] = None
    return ((name, tuple(models)) for name, models in found.items())


def _ending_in(name: str, names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The configured models whose own name, behind the provider's, this is."""
    models = (model for models in names.values() for model in models)
    return tuple(dict.fromkeys(model for model in models if model.partition("/")[2] == name))


def _misconfigured(place: str) -> ConfigError:
    return ConfigError(
        f"{AGENT_CONFIG}: {place} is not of the form name: provider/model.",
        next_step="Mend the file and sign it again.",
    )
