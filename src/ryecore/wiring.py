"""How the parts of a Rye are put together. Nothing here decides or does anything."""

import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from ryecore.actions.execute import ExecuteAction
from ryecore.actions.fetch import FetchAction
from ryecore.actions.launch import LaunchAction
from ryecore.actions.payload import Settings
from ryecore.actions.search import SearchAction
from ryecore.actions.sign import SignAction
from ryecore.actions.verify import VerifyAction
from ryecore.chain.builder import ChainBuilder
from ryecore.chain.config import ConfigResolver
from ryecore.chain.environment import EnvResolver
from ryecore.chain.executor import PrimitiveExecutor
from ryecore.chain.file_types import FileTypes
from ryecore.chain.interpreters import Interpreters
from ryecore.chain.layout import Sealer
from ryecore.chain.prepared import Preparer
from ryecore.chain.primitives import KeptProcesses
from ryecore.items.keys import AuthorKeys
from ryecore.items.project_trust import is_project_trusted
from ryecore.items.sealed import Seals
from ryecore.items.spaces import Space, Spaces, built_in_space
from ryecore.items.trust import TrustStore
from ryecore.items.verification import Verifier
from ryecore.lillux.keys import PublicKey
from ryecore.policy.approval import Approve
from ryecore.state.lazy import LazyThreadStore

if TYPE_CHECKING:
    from ryecore.actions.directive import DirectiveAction

__all__ = ["Parts", "wire"]

_DEV_MODE: Final = "RYE_DEV_MODE"


@frozen
class Parts:
    """What a Rye is made of.

    Attributes:
        project: The project's folder.
        spaces: Where items are looked for.
        trust: Which keys count.
        keys: The author's keys.
        store: The project's threads.
        execute: Executes tools and directives.
        fetch: Reads and copies items.
        search: Finds items.
        sign: Signs them.
        verify: Verifies them.
    """

    project: Path
    spaces: Spaces
    trust: TrustStore
    keys: AuthorKeys
    store: LazyThreadStore
    execute: ExecuteAction
    fetch: FetchAction
    search: SearchAction
    sign: SignAction
    verify: VerifyAction


def wire(settings: Settings, environ: Mapping[str, str], approve: Approve | None) -> Parts:
    """Put the parts of a Rye together.

    Args:
        settings: How it is opened.
        environ: The environment that tools may inherit from.
        approve: Asked before anything is signed or copied on behalf of a model.

    Returns:
        The parts.

    Raises:
        ConfigError: A setting can't be used.
        SigningError: A trusted key is none.
    """
    project, user = Path(settings.project_path), Space("user", Path(settings.user_space) / ".ai")
    spaces = Spaces(Space("project", project / ".ai"), user, settings.system_spaces)
    trust = TrustStore(spaces, [PublicKey.from_pem(pem) for pem in settings.trusted_keys])
    file_types = FileTypes(spaces, trust)
    forms = file_types.comment_forms
    dev_mode = environ.get(_DEV_MODE) == "1"
    if dev_mode:
        warnings.warn(
            f"{_DEV_MODE}=1: integrity errors are warnings, and what runs is not verified.",
            stacklevel=3,
        )
    verifier = Verifier(trust, dev_mode=dev_mode, file_types=forms)
    auditor = Verifier(trust, dev_mode=dev_mode, file_types=forms, remember=False)
    strict = Verifier(trust, file_types=forms)  # in dev mode too
    interpreters = Interpreters(
        project,
        lambda evidence: (
            settings.trust_project_interpreters
            or is_project_trusted(user, project, verifier, evidence)
        ),
    )
    configs = ConfigResolver(spaces, verifier, settings.config)
    preparer = Preparer(
        ChainBuilder(spaces, verifier, file_types),
        Sealer(Seals(Path(settings.cache_dir)), verifier),
        EnvResolver(project, environ, interpreters, settings.inherit_env),
        configs,
        {
            "project_path": str(project),
            "user_space": str(user.root.parent),
            "system_space": str(built_in_space().root),
        },
    )
    executor = PrimitiveExecutor(preparer, interpreters, auditor, _keep_connectors)
    store = LazyThreadStore(spaces.project.root, user.root, settings.durability)
    keys = AuthorKeys(user, environ)

    @cache
    def directives() -> "DirectiveAction":
        from ryecore.actions.directive import DirectiveAction  # noqa: PLC0415 - a whole room

        return DirectiveAction(spaces, verifier, configs)

    return Parts(
        project,
        spaces,
        trust,
        keys,
        store,
        execute=ExecuteAction(
            spaces, executor, LaunchAction(executor, store.open, settings, environ), directives
        ),
        fetch=FetchAction(spaces, verifier, forms, approve),
        search=SearchAction(spaces, user.root / "cache" / "search", strict, forms),
        sign=SignAction(spaces, keys, strict, forms, approve),
        verify=VerifyAction(spaces, verifier, forms),
    )


def _keep_connectors() -> KeptProcesses:
    from ryecore.mcp_client.pool import ConnectorPool  # noqa: PLC0415 - for MCP servers alone

    return ConnectorPool()
