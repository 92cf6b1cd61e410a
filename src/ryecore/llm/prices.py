"""The prices bundled with the extra `prices`. Nothing is ever fetched."""

from datetime import UTC, datetime
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeAlias

from ryecore.convert.money import MICROCENTS_PER_USD
from ryecore.errors import MissingExtra
from ryecore.llm.result import Usage

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider

__all__ = [
    "Rates",
    "bundled_context_tokens",
    "bundled_cost",
    "bundled_rates",
    "has_bundled_price",
    "have_bundled_prices",
]

_EXACT: Final = Context(prec=60)  # independent of the precision of the host's context


Rates: TypeAlias = tuple[Decimal, Decimal, Decimal | None, Decimal | None, Decimal | None]
"""USD per million tokens: input, output, read from a cache, written to it, also for an hour."""


def have_bundled_prices(*, required: bool = False) -> bool:
    """Return whether the bundled prices are installed; raise MissingExtra if they are required."""
    if _installed():
        return True
    if required:
        raise MissingExtra(
            "Bundled prices need the package genai-prices, which is not installed.",
            next_step="pip install 'ryecore[prices]'",
            extra="prices",
        )
    return False


@lru_cache(maxsize=1)
def _installed() -> bool:
    return find_spec("genai_prices") is not None


def has_bundled_price(provider: str, model: str) -> bool:
    """Return whether a model's tokens have a bundled price."""
    return _find(provider, model) is not None


def bundled_context_tokens(provider: str, model: str) -> int | None:
    """Return the size of a model's context by the bundled data; None if it isn't known."""
    found = _find(provider, model) if have_bundled_prices() else None
    return None if found is None else found[1].context_window


def bundled_rates(provider: str, model: str) -> Rates | None:
    """Return the flat price of a model's tokens; None if it depends on the time or the input."""
    from genai_prices.types import ModelPrice, TieredPrices  # noqa: PLC0415 - see below

    found = _find(provider, model)
    prices = None if found is None else found[1].prices
    if not isinstance(prices, ModelPrice):
        return None
    given = vars(prices)
    if any(isinstance(rate, TieredPrices) for rate in given.values()):
        return None
    return (
        given.get("input_mtok") or Decimal(0),
        given.get("output_mtok") or Decimal(0),
        given.get("cache_read_mtok"),
        given.get("cache_write_mtok"),
        given.get("cache_write_1h_mtok"),
    )


def bundled_cost(provider: str, model: str, usage: Usage) -> int | None:
    """Return the cost of tokens in microcents, rounded up once; None without a price.

    A price that depends on the size of the input applies to all of it, as at the provider.
    """
    found = _find(provider, model)
    if found is None:
        return None
    from genai_prices import Usage as Counted  # noqa: PLC0415 - a large import, rarely needed

    counts = Counted(  # their counts overlap: the whole includes the parts
        input_tokens=usage.total_input_tokens,
        output_tokens=usage.total_output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.total_cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
    )
    of, info = found
    with localcontext(_EXACT):
        try:
            price_usd = info.calc_price(counts, of).total_price
        except ValueError:  # it isn't priced by these tokens
            return None
        microcents = price_usd * MICROCENTS_PER_USD
        return int(microcents.to_integral_value(ROUND_CEILING))


@lru_cache(maxsize=1024)
def _find(provider: str, model: str) -> "tuple[Provider, ModelInfo] | None":
    """Find a model that is priced by the token."""
    try:
        found = _snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    prices = found[1].get_prices(datetime.now(tz=UTC))
    return found if prices.input_mtok is not None or prices.output_mtok is not None else None


@lru_cache(maxsize=1)
def _snapshot() -> "DataSnapshot":
    """Return the prices of the installed package, not those that anybody may have loaded since."""
    from genai_prices.data import providers  # noqa: PLC0415 - a large import, rarely needed
    from genai_prices.data_snapshot import DataSnapshot  # noqa: PLC0415 - see above

    return DataSnapshot(providers=providers, from_auto_update=False)
