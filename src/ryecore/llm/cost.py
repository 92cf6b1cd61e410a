"""The costs of attempts, in integer microcents (1 microcent is 1e-8 USD)."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from math import lcm
from typing import Final, TypeAlias

from attrs import evolve, field

from ryecore.convert.money import MICROCENTS_PER_USD, to_usd
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.llm.fallback_rules import AttemptRecord
from ryecore.llm.prices import bundled_cost, bundled_rates, has_bundled_price, have_bundled_prices
from ryecore.llm.request import CacheLifetime
from ryecore.llm.result import Usage

__all__ = [
    "AttemptCost",
    "CostTracker",
    "Price",
    "PriceLookup",
    "is_uncounted",
]

_MICROCENTS_A_TOKEN: Final = 100  # of 1 USD per million tokens: 1e8 / 1e6
_MAX_DECIMALS: Final = 18
_BYTES_A_WRITTEN_TOKEN: Final = 4
_MOST_TOKENS: Final = 2**40
_NOTHING: Final = Usage()
# So far apart that the cost of one kind can't make up for another.
_SOME_OF_EACH: Final = Usage(10**6, 10**12, 10**18, 10**24, cache_write_1h_tokens=10**30)
_MAY_BE_ESTIMATED: Final = frozenset({"success", "cut", "cancelled"})


def _usd(value: Decimal | str | int) -> Decimal:
    if isinstance(value, float):
        raise TypeError(f"A price is a Decimal or a text, so that it is exact; {value!r} is not.")
    try:
        price = Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a price.") from None
    if not price.is_finite() or price < 0 or price >= 10**12:
        raise ValueError(f"A price is 0 or more USD, and {value!r} is not.")
    if -int(price.as_tuple().exponent) > _MAX_DECIMALS:
        raise ValueError(f"A price has at most {_MAX_DECIMALS} decimals, and {value!r} has more.")
    return price


def _optional_usd(value: Decimal | str | int | None) -> Decimal | None:
    return None if value is None else _usd(value)


@lru_cache(maxsize=256)
def _rates_of(price: "Price") -> tuple[int, int, int, int, int, int, int, int]:
    """Return a scale, and the microcents for each count, multiplied by it to be integers.

    They are cached by the price's value: a host's `price_of` may return a new Price at each call.
    """
    written = price.input if price.cache_write is None else price.cache_write
    microcents = [
        one * _MICROCENTS_A_TOKEN
        for one in (
            Fraction(price.input),
            Fraction(price.output),
            Fraction(price.input if price.cache_read is None else price.cache_read),
            Fraction(written),
            Fraction(written if price.cache_write_1h is None else price.cache_write_1h),
            Fraction(price.output if price.reasoning is None else price.reasoning),
        )
    ]
    microcents.append(Fraction(price.per_medium or 0) * MICROCENTS_PER_USD)
    scale = lcm(*(one.denominator for one in microcents))
    read, wrote, cache_read, cache_written, cache_written_1h, thought, medium = (
        int(one * scale) for one in microcents
    )
    return scale, read, wrote, cache_read, cache_written, cache_written_1h, thought, medium


@frozen(slots=False)
class Price:
    """The price of a model, in USD per million tokens. Use texts or Decimals: they are exact.

    Attributes:
        input: For input tokens.
        output: For output tokens.
        cache_read: For tokens that are read from the provider's cache; by default `input`.
        cache_write: For tokens that are written to it; by default `input`, which is too little for
            providers that charge more for them: Anthropic 1.25 times as much.
        reasoning: For reasoning tokens; by default `output`.
        per_medium: For each medium that is made at an endpoint of its own, in USD: `0` if only its
            tokens are charged. Without it, such media have no price.
        cache_write_1h: For tokens that are written to the cache for an hour or longer; by default
            `cache_write`. Anthropic charges twice the price of `input`.

    Raises:
        TypeError: A price is a float.
        ValueError: A price isn't a number, is negative, or has more than 18 decimals.
    """

    input: Decimal = field(converter=_usd)
    output: Decimal = field(converter=_usd)
    cache_read: Decimal | None = field(default=None, converter=_optional_usd)
    cache_write: Decimal | None = field(default=None, converter=_optional_usd)
    reasoning: Decimal | None = field(default=None, converter=_optional_usd)
    per_medium: Decimal | None = field(default=None, converter=_optional_usd)
    cache_write_1h: Decimal | None = field(default=None, converter=_optional_usd)

    def cost_of(self, usage: Usage, media: int = 0) -> int:
        """Return the cost of tokens and media in microcents, rounded up once.

        Args:
            usage: The tokens.
            media: The number of media. Without `per_medium`, they add nothing: ask
                `covers_media` first.
        """
        scale, read, written, cache_read, cache_written, cache_written_1h, thought, medium = (
            self._rates
        )
        cost = (
            usage.input_tokens * read
            + usage.output_tokens * written
            + usage.cache_read_tokens * cache_read
            + usage.cache_write_tokens * cache_written
            + usage.cache_write_1h_tokens * cache_written_1h
            + usage.reasoning_tokens * thought
            + media * medium
        )
        return -(-cost // scale)

    @property
    def covers_media(self) -> bool:
        """Whether media made at an endpoint of their own have a price."""
        return self.per_medium is not None

    _rates = cached_property(_rates_of)


PriceLookup: TypeAlias = Callable[[str, str], Price | None]
"""Returns the price of a model by the provider's and the model's name; None if unknown."""


@frozen(slots=False)
class AttemptCost:
    """The cost of one attempt.

    Attributes:
        cost_microcents: The cost; 0 without a price.
        priced: Whether the model has a price.
        estimated: Whether the usage is an estimate, because the provider reported none.
        usage: The counted or estimated tokens.
        cache_saved_microcents: What the provider's cache saved: the cost without a cache, minus
            this one. It is below 0 where more was written than read, and that costs extra.
    """

    cost_microcents: int
    priced: bool
    estimated: bool
    usage: Usage = _NOTHING
    cache_saved_microcents: int = 0

    @property
    def cost_usd(self) -> Decimal:
        """The cost in US dollars."""
        return to_usd(self.cost_microcents)

    @property
    def cache_saved_usd(self) -> Decimal:
        """What the provider's cache saved, in US dollars."""
        return to_usd(self.cache_saved_microcents)


class CostTracker:
    """The sum of the costs of a run's attempts.

    Prices come from the host, else from the extra `prices` if it is installed. A model without a
    price costs 0, and is counted as unpriced.

    Args:
        price_of: The host's own prices.
        bundled: Whether to use the bundled prices; None to use them if they are installed.

    Attributes:
        cost_microcents: The whole cost.
        unpriced: The number of attempts without a price.
        estimated: The number of attempts with estimated usage.
        cache_saved_microcents: What the providers' caches saved; see `AttemptCost`.
        cache: The time for which providers are asked to keep what they read, for `worst_case`.

    Raises:
        MissingExtra: `bundled` is True, and the extra `prices` is not installed.

    Source: decisions 39, 40 and 55.
    """

    def __init__(self, price_of: PriceLookup | None = None, *, bundled: bool | None = None) -> None:
        self._price_of = price_of
        self._bundled = bundled is not False and have_bundled_prices(required=bundled is True)
        self._usages: list[Usage] = []
        self.cost_microcents = 0
        self.unpriced = 0
        self.estimated = 0
        self.cache_saved_microcents = 0
        self.cache: CacheLifetime | None = "5m"

    @property
    def cost_usd(self) -> Decimal:
        """The whole cost in US dollars."""
        return to_usd(self.cost_microcents)

    @property
    def usage(self) -> Usage:
        """All tokens."""
        total = sum(self._usages, _NOTHING)
        self._usages = [total]
        return total

    def record(self, record: AttemptRecord, *, input_tokens_estimate: int = 0) -> AttemptCost:
        """Add an attempt.

        Usage that the provider didn't count is estimated, also of an answer that was cut off: 4
        bytes a token, rounded up. A count of zero input or output tokens counts as missing.

        Args:
            record: The record of the attempt.
            input_tokens_estimate: Its input tokens, for an estimate.
        """
        if record.outcome in ("skipped", "refused"):
            return AttemptCost(0, True, False)
        if record.usage is not None and not _can_be(record.usage):  # nothing of it is stored
            raise ValueError(f"{record.provider} counted what can be no number of tokens.")
        usage, estimated = _counted(record, input_tokens_estimate)
        cost_of = self._pricing(record.provider, record.model, len(record.media))
        cost = cost_of(usage)
        saved = 0
        if cost and (
            usage.cache_read_tokens or usage.cache_write_tokens or usage.cache_write_1h_tokens
        ):
            saved = (cost_of(_uncached(usage)) or cost) - cost
        self._usages.append(usage)
        self.cost_microcents += cost or 0
        self.unpriced += cost is None
        self.estimated += estimated
        self.cache_saved_microcents += saved
        return AttemptCost(cost or 0, cost is not None, estimated, usage, saved)

    def add(
        self,
        usage: Usage,
        cost_microcents: int,
        *,
        unpriced: int,
        estimated: int,
        cache_saved_microcents: int = 0,
    ) -> None:
        """Add the totals of an earlier tracker.

        Args:
            usage: Its tokens.
            cost_microcents: Its cost.
            unpriced: Its number of attempts without a price.
            estimated: Its number of attempts with estimated usage.
            cache_saved_microcents: What the providers' caches saved.
        """
        self._usages.append(usage)
        self.cost_microcents += cost_microcents
        self.unpriced += unpriced
        self.estimated += estimated
        self.cache_saved_microcents += cache_saved_microcents

    def worst_case(
        self, provider: str, model: str, input_tokens: int, output_tokens: int, media: int = 0
    ) -> int | None:
        """Return the most that an attempt can cost, in microcents; None without a price.

        Args:
            provider: The provider's id.
            model: The model.
            input_tokens: The tokens that it will read, from cache or not.
            output_tokens: The tokens that it may write, reasoning included.
            media: The number of media that it may make.

        Source: decision 40.
        """
        cost_of = self._pricing(provider, model, media)
        if cost_of is _unpriced:
            return None
        plain = cost_of(Usage(input_tokens, output_tokens))
        if self.cache == "1h":
            written = Usage(0, 0, 0, 0, output_tokens, input_tokens)
        else:  # also without caching, for some providers do it unasked
            written = Usage(0, 0, 0, input_tokens, output_tokens)
        cached = cost_of(written)
        if plain is None or cached is None:
            return cached if plain is None else plain
        return max(plain, cached)

    def to_dict(self) -> dict[str, int]:
        """Return the totals as a JSON-ready object."""
        usage = self.usage
        return {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "cache_write_1h_tokens": usage.cache_write_1h_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cost_microcents": self.cost_microcents,
            "unpriced": self.unpriced,
            "estimated": self.estimated,
            "cache_saved_microcents": self.cache_saved_microcents,
        }

    def _pricing(self, provider: str, model: str, media: int) -> Callable[[Usage], int | None]:
        """Return the function that prices the tokens of an attempt that makes some media."""
        price = self._price_of(provider, model) if self._price_of is not None else None
        if price is not None:
            if not isinstance(price, Price):
                raise ConfigError(
                    f"The host's price_of gave {type(price).__name__} for {provider}/{model}, "
                    "not a Price.",
                    next_step="Let it return a Price, or None where the price isn't known.",
                )
            if not media:
                return price.cost_of
            return partial(price.cost_of, media=media) if price.covers_media else _unpriced
        if media or not self._bundled:  # the bundled prices are for tokens
            return _unpriced
        return _bundled_pricing(provider, model)


def _uncached(usage: Usage) -> Usage:
    """Return the usage that the same request has without a cache."""
    return Usage(
        usage.total_input_tokens,
        usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )


def _unpriced(_: Usage) -> None:
    """Return None: there is no price."""


@lru_cache(maxsize=1024)
def _bundled_pricing(provider: str, model: str) -> Callable[[Usage], int | None]:
    """Return the function that prices tokens by the bundled prices, which never change."""
    if not has_bundled_price(provider, model):
        return _unpriced
    price = _flat_price(provider, model)  # as most models have
    return partial(bundled_cost, provider, model) if price is None else price.cost_of


def _flat_price(provider: str, model: str) -> Price | None:
    """Return the bundled price of a model as a `Price`; None if that can't express it exactly."""
    rates = bundled_rates(provider, model)
    if rates is None:
        return None
    try:
        of_input, of_output, read, written, written_1h = rates
        price = Price(of_input, of_output, read, written, cache_write_1h=written_1h)
    except ValueError:  # it has too many decimals
        return None
    same = price.cost_of(_SOME_OF_EACH) == bundled_cost(provider, model, _SOME_OF_EACH)
    return price if same else None


def _can_be(usage: Usage) -> bool:
    """Return whether a provider's counts are possible: one below 0 would pay for another."""
    for one in (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.cache_write_1h_tokens,
    ):
        if (type(one) is not int and not isinstance(one, int)) or not 0 <= one <= _MOST_TOKENS:
            return False
    return True


def is_uncounted(record: AttemptRecord) -> bool:
    """Return whether a provider answered without reporting the tokens that it read."""
    usage = record.usage
    return record.outcome in _MAY_BE_ESTIMATED and (usage is None or not usage.total_input_tokens)


def _counted(record: AttemptRecord, input_tokens_estimate: int) -> tuple[Usage, bool]:
    """Return an attempt's usage, and whether it is an estimate. Source: decisions 40 and 55."""
    counted = record.usage or _NOTHING
    if record.outcome not in _MAY_BE_ESTIMATED:
        return counted, False
    usage, written = counted, counted.total_output_tokens
    if not counted.total_input_tokens:
        usage = evolve(usage, input_tokens=input_tokens_estimate)
    missing = -(-record.text_bytes // _BYTES_A_WRITTEN_TOKEN) - written
    # Of an answer that was cut off, some providers count only the beginning.
    is_counted = record.outcome == "success" and written > 0
    if missing > 0 and not is_counted:
        usage = evolve(usage, output_tokens=counted.output_tokens + missing)
    return usage, usage is not counted and usage != counted
