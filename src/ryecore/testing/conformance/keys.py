"""Cases: keys are used for their call, and appear nowhere else."""

import gc
import hashlib
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import compress
from types import FrameType
from typing import Final

from attrs import evolve

from ryecore.llm import TextPart
from ryecore.testing.conformance.bench import (
    KEY,
    Bench,
    Cases,
    case,
    check,
    close,
    equal,
    everything_in,
)
from ryecore.testing.conformance.script import Script, SeenRequest

__all__ = ["KeyCases"]

_DONE: Final = Script((TextPart("Fine."),))
_NOBODY: Final = "http://127.0.0.1:1"
_PROXIES: Final = {
    name: _NOBODY
    for upper in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    for name in (upper, upper.lower())
}
_PREFIX: Final = "test-key-"
_PREFIX_BYTES: Final = _PREFIX.encode()
_CAN_HOLD: Final = frozenset({str, bytes, bytearray, dict, tuple})
_AT_ONCE: Final = 512


class KeyCases(Cases):
    """Keys are used for their call, and appear nowhere else."""

    @case()
    async def test_each_call_has_its_own_key(self, at: Bench) -> None:
        """Two keys in turn over one provider never mix."""
        at.server.answer(_DONE)
        for key in ("test-key-one", "test-key-two", "test-key-one"):
            await at.streamed(key=key)
            await at.generated(key=key)
        keys = [one.key for one in at.server.seen]

        ones, twos = ["test-key-one"] * 2, ["test-key-two"] * 2
        equal(keys, [*ones, *twos, *ones], "the keys that the server saw")

    @case()
    async def test_no_key_where_none_is_needed(self, at: Bench) -> None:
        """An empty key is an anonymous request, and never somebody else's key."""
        at.server.answer(_DONE)
        with _environment(at.wire.environment):
            await at.streamed(key="")
            await at.generated(key="")

        equal([one.key for one in at.server.seen], ["", ""], "the keys that the server saw")

    @case()
    async def test_a_key_that_no_header_can_carry(self, at: Bench) -> None:
        """A key with a line's end, or beyond ASCII, is `auth`; it is neither sent nor quoted."""
        at.server.answer(_DONE)
        for key in (f"{KEY}\n", f"{KEY}\r\nX-Other: 1", f" {KEY}", f"{KEY}é"):
            for stream in (True, False):
                error = await at.failed(key=key, stream=stream)
                equal(error.kind, "auth", f"the kind of error for the key {key!r}")
                check(KEY not in everything_in(error), f"An error quotes the key {key!r}.")
        equal(len(at.server.raw), 0, "how many requests were sent")

    @case()
    async def test_no_cookie_is_kept(self, at: Bench) -> None:
        """A cookie set for one key isn't sent with another."""
        for stream in (True, False):
            reply = at.server.reply(_DONE, SeenRequest(at.model, KEY, stream))
            at.server.answer(evolve(reply, headers={"Set-Cookie": "session=of-one-key; Path=/"}))
            for key in ("test-key-one", "test-key-two"):
                request = at.request()
                await (at.streamed(request, key) if stream else at.generated(request, key))

        cookies = [raw.headers.get("cookie") for raw in at.server.raw]
        equal(cookies, [None] * 4, "the cookies that the server got")

    @case()
    async def test_keys_stand_in_no_log(self, at: Bench) -> None:
        """No log record of any logger holds the key."""
        with _all_logs() as records:
            at.server.answer(_DONE)
            await at.streamed()
            await at.generated()
            at.server.answer(at.wire.error("bad_key", f"The key {KEY} is wrong."))
            await at.failed()
            await at.failed(stream=False)

        shown = [one for one in records if KEY in one]
        equal(shown, [], "log records that show the key")

    @case()
    async def test_keys_stand_in_no_repr(self, at: Bench) -> None:
        """The provider shows no key, before and after a call."""
        at.server.answer(_DONE)
        await at.streamed()

        shown = f"{at.provider!r} {at.provider!s} {getattr(at.provider, '__dict__', '')!r}"
        check(KEY not in shown, "The provider's repr shows the key.")

    @case()
    async def test_no_key_is_kept_after_its_call(self, at: Bench) -> None:
        """When a call is over, nothing in this process still holds its key."""
        seed = secrets.token_hex(8)
        at.server.answer(_DONE)
        await at.streamed(key=_secret(f"{seed}1"))
        await at.generated(key=_secret(f"{seed}2"))
        at.server.answer(at.wire.error("bad_key", "No."))
        await at.failed(key=_secret(f"{seed}3"))
        at.server.forget()

        equal(_holders([f"{seed}{number}" for number in (1, 2, 3)]), [], "what still holds a key")

    @case()
    async def test_the_environment_does_not_leak_in(self, at: Bench) -> None:
        """Keys, addresses and proxies of the environment are ignored."""
        with _environment({**at.wire.environment, **_PROXIES}):
            provider = self.make_provider(at.server.base_url)
            try:
                elsewhere = Bench(at.server, provider, self, at.backend)
                at.server.answer(_DONE)
                await elsewhere.streamed()
                await elsewhere.generated()
            finally:
                await close(provider)
        equal([one.key for one in at.server.seen], [KEY, KEY], "the keys that the server saw")
        for raw in at.server.raw:
            sent = f"{raw.path} {dict(raw.headers)}"
            for name, value in at.wire.environment.items():
                check(value not in sent, f"{name} leaks into the request.")


def _secret(seed: str) -> str:
    """Return a key that can be made again, so that nobody needs to keep it."""
    return _PREFIX + hashlib.sha256(seed.encode()).hexdigest()[:24]


def _holders(seeds: list[str]) -> list[str]:
    """Return the holders of a key. It searches many objects at once, and the found ones closely."""
    gc.collect()
    found: list[str] = []
    everything = gc.get_objects()
    for start in range(0, len(everything), _AT_ONCE):
        some = everything[start : start + _AT_ONCE]
        if _hold(gc.get_referents(*some), seeds):
            found += [_name_of(one) for one in some if _hold(gc.get_referents(one), seeds)]
    return found


def _hold(held: list[object], seeds: list[str]) -> bool:
    """Return whether a key is among these objects."""
    for one in compress(held, map(_CAN_HOLD.__contains__, map(type, held))):
        if isinstance(one, str):
            if _PREFIX in one and any(_secret(seed) in one for seed in seeds):
                return True
        elif isinstance(one, bytes | bytearray):
            if _PREFIX_BYTES in one and any(_secret(seed).encode() in one for seed in seeds):
                return True
        # Such a one holds nothing but texts and numbers, and stands in no list of objects.
        elif not gc.is_tracked(one) and _hold(gc.get_referents(one), seeds):
            return True
    return False


def _name_of(holder: object) -> str:
    if isinstance(holder, FrameType):
        return f"a frame of {holder.f_code.co_qualname}"
    return type(holder).__qualname__


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while; proxies apply to 127.0.0.1 too."""
    before = dict(os.environ)
    os.environ.update(variables)
    for name in ("NO_PROXY", "no_proxy"):
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _all_logs() -> Iterator[list[str]]:
    """Every record of every logger, as text, for a while."""
    texts: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(f"{self.format(record)} {record.__dict__!r}")

    names = [None, *logging.root.manager.loggerDict]
    loggers = [logging.getLogger(name) for name in names]
    before = [(one, one.level, one.propagate, one.disabled) for one in loggers]
    keep = Keep(logging.DEBUG)
    logging.root.addHandler(keep)
    for one in loggers:
        one.setLevel(logging.DEBUG)
        one.propagate, one.disabled = True, False
    try:
        yield texts
    finally:
        logging.root.removeHandler(keep)
        for one, level, propagate, disabled in before:
            one.setLevel(level)
            one.propagate, one.disabled = propagate, disabled
