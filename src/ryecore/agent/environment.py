"""The providers whose keys stand in the environment.

A key is read from the environment each time that a model is called, and is stored nowhere.

Source: docs/design/agent-node.md#what-the-host-injects; decision 61.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ryecore.errors import ConfigError, MissingExtra, RyeError
from ryecore.frozen import frozen

if TYPE_CHECKING:
    from ryecore.llm.provider import LlmProvider

__all__ = ["EnvironmentProviders", "missing_models_error"]


@frozen
class _Vendor:
    """A provider whose key may stand in the environment.

    `provider_id` is the part of a model's name in front of the slash, `package` the SDK, which its
    extra installs, `home` its adapter as `module:class`. The first of `keys` that is set counts.
    """

    provider_id: str
    package: str
    home: str
    keys: tuple[str, ...]


_VENDORS: Final = (
    _Vendor(
        "anthropic",
        "anthropic",
        "ryecore.providers.anthropic:AnthropicProvider",
        ("ANTHROPIC_API_KEY",),
    ),
    _Vendor("openai", "openai", "ryecore.providers.openai:OpenAIProvider", ("OPENAI_API_KEY",)),
    _Vendor(
        "gemini",
        "google.genai",
        "ryecore.providers.gemini:GeminiProvider",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
)


class EnvironmentProviders:
    """The providers with a key in an environment, by default that of this process.

    Only those whose SDK is installed count; without any, it is false.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._vendors = {
            vendor.provider_id: vendor
            for vendor in _VENDORS
            if _key_in(self._environ, vendor) and _is_installed(vendor.package)
        }
        self._made: dict[str, LlmProvider] = {}

    def __bool__(self) -> bool:
        return bool(self._vendors)

    def resolve(self, provider_id: str) -> "LlmProvider | None":
        """Return the provider with an id, always the same one."""
        vendor = self._vendors.get(provider_id)
        if vendor is not None and provider_id not in self._made:  # an SDK is slow to import
            module, _, name = vendor.home.partition(":")
            self._made[provider_id] = getattr(import_module(module), name)()
        return self._made.get(provider_id)

    def key_for(self, provider_id: str) -> str:
        """Return the key for a provider; an empty text without one."""
        vendor = self._vendors.get(provider_id)
        return "" if vendor is None else _key_in(self._environ, vendor)


def _key_in(environ: Mapping[str, str], vendor: _Vendor) -> str:
    """Return a provider's key without blanks around it, as of a line break from a file."""
    keys = (environ.get(name, "").strip() for name in vendor.keys)
    return next(filter(None, keys), "")


def missing_models_error(
    environ: Mapping[str, str] | None = None,
    *,
    provider_id: str | None = None,
    otherwise: str = "pass --deps module:function, which makes AgentRunnerDeps",
) -> RyeError:
    """Return the error that says why there is no model, or none of a provider, and what to do.

    `otherwise` says what helps where no key can be set.
    """
    environ = os.environ if environ is None else environ
    vendors = [one for one in _VENDORS if provider_id in (None, one.provider_id)]
    if not vendors:
        return ConfigError(
            f"No API key of the environment is for '{provider_id}'.",
            next_step=f"Name a model of {', '.join(one.provider_id for one in _VENDORS)}, or "
            f"{otherwise}.",
        )
    for vendor in vendors:
        named = next((name for name in vendor.keys if environ.get(name, "").strip()), None)
        if named is not None and not _is_installed(vendor.package):
            extra = vendor.provider_id
            return MissingExtra(
                f"{named} is set, but the extra {extra} is not installed.",
                next_step=f"pip install 'ryecore[{extra}]', or {otherwise}.",
                extra=extra,
            )
    if provider_id is not None:
        key = vendors[0].keys[0]
        return ConfigError(
            f"'{provider_id}' needs an API key, but {key} isn't set.",
            next_step=f"Set it and install the extra (pip install 'ryecore[{provider_id}]'), or "
            f"{otherwise}.",
        )
    return ConfigError(
        "No model can be asked, as no API key is set: none of "
        f"{', '.join(vendor.keys[0] for vendor in _VENDORS)} is set.",
        next_step="Set one and install its extra (such as: pip install 'ryecore[anthropic]'), or "
        f"{otherwise}.",
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
