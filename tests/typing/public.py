"""What a type checker sees of the public surface. Checked by mypy and pyright, never run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import ryecore
from ryecore import (
    ApprovalRequest,
    CallContext,
    CancelToken,
    ExecutionResult,
    IntegrityError,
    ItemRef,
    Rye,
    RyeError,
    SigningKey,
    SyncRye,
    TrustStore,
    VerifiedItem,
    rye_execute,
    rye_fetch,
    rye_sign,
    sign_item,
    verify_item,
)
from ryecore.chain.model import ChainTrace, ValidChain
from ryecore.items.signing import SignedFile
from ryecore.lillux import PublicKey
from ryecore.results import FetchedItem, SearchResult, SearchResults, SignReport


async def approve(request: ApprovalRequest) -> bool:
    return request.action == "sign" and len(request.files) == 1


async def asynchronous(key: SigningKey) -> None:
    async with Rye.open(".", trusted_keys=[key.public], inherit_env={"CI"}) as rye:
        assert_type(rye, Rye)
        done = await rye.execute("tool:acme/x", {"a": 1}, timeout_s=2.5, trace=True)
        assert_type(done, ExecutionResult)
        assert_type(done.chain, ValidChain)
        assert_type(done.raise_for_status(), ExecutionResult)
        assert_type(done.to_dict(), dict[str, object])
        assert_type(await rye.trace(ItemRef("tool", "acme/x")), ChainTrace)
        assert_type(await rye.schema("tool:acme/x"), Mapping[str, Any] | None)
        await rye.execute("tool:acme/x", ctx=CallContext(cancellation=CancelToken()))
        found = await rye.search("tides", scope=["knowledge"], limit=5)
        assert_type(found, SearchResults)
        assert_type(found.results, tuple[SearchResult, ...])
        assert_type(await rye.fetch("knowledge:acme/tides", destination="user"), FetchedItem)
        asked = await rye.request_signing("tool:acme/x", ctx=CallContext(capabilities=frozenset()))
        assert_type(asked, SignReport)
    Rye.open(".", approve=approve)
    assert_type(await rye_fetch("tool:acme/x", "."), dict[str, object])
    assert_type(await rye_sign("tool:acme/x", "."), dict[str, object])
    assert_type(await rye_execute("tool:acme/x", "."), dict[str, object])


def synchronous() -> None:
    with SyncRye.open(Path()) as rye:
        assert_type(rye.execute("tool:acme/x"), ExecutionResult)
        assert_type(rye.sign("tool:acme/*"), SignReport)
        assert_type(rye.verify("tool:acme/x"), VerifiedItem)


def items(path: Path, key: SigningKey, trust: TrustStore) -> None:
    assert_type(sign_item(path, key), SignedFile)
    assert_type(verify_item(path, trust).content, bytes)
    assert_type(key.public, PublicKey)


def errors(error: IntegrityError) -> None:
    base: RyeError = error
    assert_type(base.chain, tuple[str, ...])
    assert_type(error.path, Path)


def a_misspelt_name_is_an_error() -> object:
    return ryecore.Ry  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
