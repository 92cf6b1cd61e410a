"""The prices that the extra `prices` brings along. Nothing is ever fetched."""

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

__all__ = ["Rates", "bundled_cost", "bundled_rates", "have_bundled_prices"]

_EXACT: Final = Context(prec=60)  # whatever precision the host's own context has


Rates: TypeAlias = tuple[Decimal, Decimal, Decimal | None, Decimal | None]
"""USD per million tokens: read, written, read from a cache, written to it."""


def have_bundled_prices(*, required: bool = False) -> bool:
    """Whether there are bundled prices.

    Args:
        required: Whether they are asked for by name.

    Raises:
        MissingExtra: They are required, and not installed.
    """
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


def bundled_rates(provider: str, model: str) -> Rates | None:
    """What a model's tokens cost, where that is the same at all times and however much is read.

    Args:
        provider: The provider's id.
        model: The model's name.
    """
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
    )


def bundled_cost(provider: str, model: str, usage: Usage) -> int | None:
    """What tokens cost in microcents, rounded up once; None where there is no price.

    A price that depends on how much is read holds for all of it, as the provider says.

    Args:
        provider: The provider's id.
        model: The model's name.
        usage: The tokens.
    """
    found = _find(provider, model)
    if found is None:
        return None
    from genai_prices import Usage as Counted  # noqa: PLC0415 - a large import, rarely needed

    counts = Counted(  # theirs are not disjoint: a part is counted in the whole as well
        input_tokens=usage.total_input_tokens,
        output_tokens=usage.total_output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    of, info = found
    with localcontext(_EXACT):
        try:
            price_usd = info.calc_price(counts, of).total_price
        except ValueError:  # it is priced by something else than these tokens
            return None
        microcents = price_usd * MICROCENTS_PER_USD
        return int(microcents.to_integral_value(ROUND_CEILING))


@lru_cache(maxsize=1024)
def _find(provider: str, model: str) -> "tuple[Provider, ModelInfo] | None":
    """A model that is priced by the token."""
    try:
        found = _snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    prices = found[1].get_prices(datetime.now(tz=UTC))
    return found if prices.input_mtok is not None or prices.output_mtok is not None else None


@lru_cache(maxsize=1)
def _snapshot() -> "DataSnapshot":
    """What stands in the installed package, and not what anybody may have loaded since."""
    from genai_prices.data import providers  # noqa: PLC0415 - a large import, rarely needed
    from genai_prices.data_snapshot import DataSnapshot  # noqa: PLC0415 - see above

    return DataSnapshot(providers=providers, from_auto_update=False)
