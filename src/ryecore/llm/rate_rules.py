"""The rate limit of a provider, and the arithmetic of its minute. Pure: the time is an argument."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from attrs import field
from attrs.validators import optional

from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.llm.checks import at_least, of

__all__ = ["RateLimit", "RateWindow", "Taken", "check_rate_limits"]

_MINUTE_S: Final = 60.0
_ARRIVAL_S: Final = 5.0  # the time in which a request reaches its provider, on a busy machine too

_COUNT: Final = optional([of("a whole number", int), at_least(1)])


@frozen
class RateLimit:
    """The most that a provider may be asked, by all conversations together.

    Attributes:
        requests_per_minute: The most requests in any minute, at least 1; None for any number.
        tokens_per_minute: The most tokens in any minute, read and written, at least 1; None for
            any number.
        requests_at_once: The most requests that run at the same time, at least 1; None for any
            number.

    Raises:
        ConfigError: A number is less than 1, or no number is given.
    """

    requests_per_minute: int | None = field(default=None, validator=_COUNT)
    tokens_per_minute: int | None = field(default=None, validator=_COUNT)
    requests_at_once: int | None = field(default=None, validator=_COUNT)

    def __attrs_post_init__(self) -> None:
        if self.requests_per_minute or self.tokens_per_minute or self.requests_at_once:
            return
        raise ConfigError(
            "A RateLimit without a number limits nothing.",
            next_step="Write RateLimit(requests_per_minute=50), with the numbers of your account.",
        )


_EXAMPLE: Final = 'Write it as {"anthropic": RateLimit(requests_per_minute=50)}.'


def check_rate_limits(limits: Mapping[str, RateLimit]) -> None:
    """Refuse what isn't a mapping of providers, or `provider/model`, to rate limits.

    Raises:
        ConfigError: It isn't.
    """
    if not isinstance(limits, Mapping):
        raise ConfigError("rate_limits must be a mapping.", next_step=_EXAMPLE)
    for name, limit in limits.items():
        if not isinstance(name, str) or not name or name.endswith(("/", "/*")):
            raise ConfigError(
                f"rate_limits names {name!r}, which is neither a provider nor a model.",
                next_step='Name a provider, such as "anthropic", or a model of it, such as '
                '"openai/gpt-5".',
            )
        if not isinstance(limit, RateLimit):
            raise ConfigError(f"rate_limits[{name!r}] isn't a RateLimit.", next_step=_EXAMPLE)


class Taken:
    """A request that counts towards a rate limit, with the tokens that count for it."""

    __slots__ = ("counts", "sent_s", "tokens", "until_s")

    def __init__(self, sent_s: float, tokens: int) -> None:
        self.counts = True
        self.sent_s = sent_s
        self.tokens = tokens
        self.until_s = sent_s + _ARRIVAL_S + _MINUTE_S


class RateWindow:
    """The requests of the last minute of one rate limit.

    A minute counts from when the provider has a request at the latest: the end of its answer, or
    five seconds after it was sent. So no minute of the provider's holds more than the limit.
    """

    def __init__(self, limit: RateLimit) -> None:
        self.limit = limit
        self._taken: deque[Taken] = deque()
        self._tokens = 0
        self._open = 0
        self._held_until_s: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether as many requests run as may at once."""
        most = self.limit.requests_at_once
        return most is not None and self._open >= most

    def fitting(self, tokens: int) -> int:
        """Return tokens, or as many of them as ever fit into a minute."""
        most = self.limit.tokens_per_minute
        return tokens if most is None else min(tokens, most)

    def wait_s(self, now_s: float, tokens: int, *, ahead: int = 0, tokens_ahead: int = 0) -> float:
        """Return the seconds until a request of that many tokens has room; 0 if it has.

        `ahead` is the number of requests that wait already, and `tokens_ahead` the number of their
        tokens. With some, the result is the least that it can be. Neither counts `is_full`.
        """
        self._forget(now_s)
        wait_s = 0.0
        if self._held_until_s is not None:
            wait_s = max(wait_s, self._held_until_s - now_s)
        requests, most_tokens = self.limit.requests_per_minute, self.limit.tokens_per_minute
        if requests is not None:
            used = len(self._taken)
            if used + ahead >= requests:
                one = self._room_s(now_s, used, ahead + 1, requests, _one)
                wait_s = max(wait_s, one)
        if most_tokens is not None and tokens:
            wanted = tokens_ahead + self.fitting(tokens)
            if self._tokens + wanted > most_tokens:
                one = self._room_s(now_s, self._tokens, wanted, most_tokens, _tokens_of)
                wait_s = max(wait_s, one)
        return wait_s

    def take(self, now_s: float, tokens: int) -> Taken:
        """Count a request that is about to be sent."""
        taken = Taken(now_s, self.fitting(tokens))
        self._taken.append(taken)
        self._tokens += taken.tokens
        self._open += 1
        return taken

    def settle(self, taken: Taken, now_s: float, tokens: int) -> None:
        """Count a request's real tokens, once it has ended, in place of those that it took."""
        self._open -= 1
        if taken.counts:
            self._tokens += tokens - taken.tokens
            taken.tokens = tokens
            taken.until_s = min(now_s, taken.sent_s + _ARRIVAL_S) + _MINUTE_S

    def give_back(self, taken: Taken) -> None:
        """Count a request no longer, because it was never sent."""
        self._open -= 1
        if taken.counts:
            self._taken.remove(taken)
            self._tokens -= taken.tokens

    def hold(self, now_s: float, wait_s: float) -> None:
        """Let nothing be sent for some seconds, as the provider asks for."""
        until_s = now_s + wait_s
        if self._held_until_s is None or until_s > self._held_until_s:
            self._held_until_s = until_s

    def _forget(self, now_s: float) -> None:
        """Forget the requests that are over a minute ago."""
        taken = self._taken
        while taken and taken[0].until_s <= now_s:
            over = taken.popleft()
            over.counts = False
            self._tokens -= over.tokens
        if self._held_until_s is not None and self._held_until_s <= now_s:
            self._held_until_s = None

    def _room_s(
        self, now_s: float, used: int, wanted: int, most: int, size_of: Callable[[Taken], int]
    ) -> float:
        """Return the seconds until what is wanted fits beside what is used then."""
        minutes, rest = divmod(wanted - 1, most)
        excess, until_s = used + rest + 1 - most, now_s
        for taken in self._taken:
            if excess <= 0:
                break
            excess -= size_of(taken)
            until_s = max(until_s, taken.until_s)
        return minutes * _MINUTE_S + until_s - now_s


def _one(taken: Taken) -> int:
    return 1


def _tokens_of(taken: Taken) -> int:
    return taken.tokens
