"""`Rye`: the host of a project, made from its folders, its settings and the environment."""

import os
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import anyio

from ryecore.actions.graphs import Graphs
from ryecore.actions.options import ExecuteOptions
from ryecore.actions.recovering import Recovered
from ryecore.actions.recovering import recover as recover_all
from ryecore.actions.running import Running
from ryecore.actions.settings import (
    WARM_MEMORY_MIB,
    Settings,
    check_allowed,
    check_factory,
    check_warm_memory,
)
from ryecore.actions.threads import Threads
from ryecore.chain.config import HostConfig
from ryecore.chain.model import ChainTrace, ExecutionResult
from ryecore.items.paths import existing_folder, folder_to_be
from ryecore.items.project_trust import trust_project
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Space, discover_bundles
from ryecore.items.verification import VerifiedItem
from ryecore.lillux.keys import PublicKey
from ryecore.policy import CallContext
from ryecore.policy.environment import InheritEnv
from ryecore.policy.limits import Limits
from ryecore.state.model import Durability
from ryecore.wiring import Parts

if TYPE_CHECKING:
    from ryecore.actions.fetch import FetchedItem
    from ryecore.actions.sign import SignReport
    from ryecore.actions.verify import VerifyReport
    from ryecore.agent.deps import AgentRunnerDeps
    from ryecore.policy.permissions import Approve
    from ryecore.search.model import SearchResults
    from ryecore.threads.thread import Thread

__all__ = ["Rye"]


class Rye:
    """An open project: execute its tools and directives, those of the user and of bundles too.

    Open one with `Rye.open`, and close it: `async with Rye.open(".") as rye: ...`. Two open Ryes
    never see each other's state.

    Attributes:
        project: The project's folder.
        spaces: Where items are looked for.
        trust: Which keys count.
        keys: The signing key of the person who works here.
        env: The names of the project's `.env` that are set.
        graphs: The project's graphs, walked in this process.
        threads: What runs, and ran, in processes of its own.
        recovered: The threads and runs that had died and were to be resumed on entry.
    """

    def __init__(self, parts: Parts, *, recover: bool = False) -> None:
        self.project = parts.project
        self.spaces = parts.spaces
        self.trust = parts.trust
        self.keys = parts.keys
        self.env = parts.env
        self._parts = parts
        self._running = Running()
        self._recovers = recover
        self.recovered: tuple[Recovered, ...] = ()
        self.graphs = Graphs(
            parts.spaces,
            self._running,
            lambda: parts.graphs,
            parts.store.open_existing,
            parts.execute.schema,
        )
        self.threads = Threads(
            parts.store.open_existing, self._running, lambda: parts.threads, parts.prune
        )

    @classmethod
    def open(
        cls,
        project_path: str | os.PathLike[str] = ".",
        *,
        user_space: str | os.PathLike[str] | None = None,
        system_spaces: Iterable[Space] | None = None,
        environ: Mapping[str, str] | None = None,
        inherit_env: InheritEnv = "safe",
        allow_env: Iterable[str] = (),
        trusted_keys: Iterable[PublicKey | str | bytes] = (),
        trust_project_interpreters: bool = False,
        config: HostConfig | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        approve: "Approve | None" = None,
        agent: "AgentRunnerDeps | None" = None,
        deps_factory: str | None = None,
        durability: Durability = "process",
        warm_memory_mib: int = WARM_MEMORY_MIB,
        recover: bool = False,
    ) -> Self:
        """Open a project.

        Args:
            project_path: The project's folder, which may hold `.ai`.
            user_space: The folder that holds the user's `.ai`; `USER_SPACE`, else the home folder.
            system_spaces: The system bundles; by default the built-in one and those that
                installed packages offer.
            environ: The environment that tools may inherit from; this process's by default.
            inherit_env: What they inherit of it: `safe` leaves out what looks like a credential,
                `all`, `none` but what a process needs to start, or names that are let through.
            allow_env: Names of the project's `.env` that count though no signed element asks for
                them; other names of it are dropped.
            trusted_keys: Public keys, or their PEM, that the host vouches for.
            trust_project_interpreters: Whether an interpreter inside the project may run.
            config: What the host sets, by the path below `.ai/config/`; it beats every file.
            cache_dir: Where verified files are sealed; `.ai/cache/sealed` in user space by default.
            approve: Asked before a model, a tool or an MCP client signs or copies anything; without
                it they can't.
            agent: The models, keys and tools with which directives run in threads of their own.
            deps_factory: `package.module:function`, called in a detached process: it returns the
                arguments of `Rye.open` that hold callables, such as `approve` and `agent`: they
                can't travel.
            durability: What a change of `.ai/state` survives: the death of the `process`, or the
                loss of power too (`machine`).
            warm_memory_mib: What the templates that Python tools start warm from may take, in MiB,
                with what they have forked ahead; with 0 every process starts cold.
            recover: Whether to resume all that died, once it is entered; see `recovered`.

        Returns:
            The open Rye, to be used as an asynchronous context manager.

        Raises:
            ConfigError: The project isn't a folder, another path can be none, a bundle can't be
                loaded, or an option has no such value.
        """
        environ = dict(os.environ if environ is None else environ)
        base = user_space or environ.get("USER_SPACE") or environ.get("HOME") or Path.home()
        user = folder_to_be(base, "user space")
        cache = folder_to_be(cache_dir, "cache") if cache_dir else user / ".ai/cache/sealed"
        settings = Settings(
            project_path=str(existing_folder(project_path)),
            user_space=str(user),
            system_spaces=(discover_bundles() if system_spaces is None else tuple(system_spaces)),
            inherit_env=inherit_env,
            allow_env=check_allowed(allow_env),
            trusted_keys=tuple(map(_pem, trusted_keys)),
            trust_project_interpreters=trust_project_interpreters,
            config=config or {},
            cache_dir=str(cache),
            durability=durability,
            deps_factory=check_factory(deps_factory),
            warm_memory_mib=check_warm_memory(warm_memory_mib),
        )
        return cls(Parts(settings, environ, approve, agent), recover=recover)

    async def execute(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
        target: str = "local",
        thread: str = "inline",
        async_: bool = False,
        model: str | None = None,
        limits: Mapping[str, float] | None = None,
        timeout_s: float | None = None,
        trace: bool = False,
        output_log: str | os.PathLike[str] | None = None,
        idempotency_key: str | None = None,
        ctx: CallContext | None = None,
    ) -> ExecutionResult:
        """Execute a tool in a fresh process, or get a directive's directions; all verified first.

        Args:
            ref: `tool:ID`, `directive:ID`, or a bare id: the directive, else the tool.
            parameters: What the tool is given, checked against its schema; or the directive's
                inputs, each checked against its declared type.
            dry_run: Verify, validate and plan, and run nothing.
            target: Where: `local`.
            thread: How: `inline`, or for a directive `fork`: a managed thread with a model loop.
            async_: Return at once.
            model: A directive's: `provider/model`, or a tier or name of `agent/agent.yaml`.
            limits: A directive's: limits by name, such as `{"turns": 8}`.
            timeout_s: A tool's: after how many seconds its whole process group ends.
            trace: Whether the result carries the events of every decision.
            output_log: A file that a tool's output is also written to as it comes.
            idempotency_key: With `async_` or `fork`: a start repeated with it finds its run.
            ctx: On whose behalf; the host's own by default, which may do everything.

        Returns:
            What came of it; a tool that ran and failed has the status `error`. A directive's is a
            `DirectiveResult` with `your_directions`, or a `ThreadResult`.

        Raises:
            RyeError: Nothing ran. The error says why and what to do, with the partial chain.
        """
        log = None if output_log is None else os.fspath(output_log)
        options = ExecuteOptions(
            dry_run, target, thread, async_, model, limits, timeout_s, trace, log,
            idempotency_key=idempotency_key,
        )  # fmt: skip
        call = partial(self._parts.execute, ref, parameters, options, ctx or CallContext())
        return await self._running.run(ref, call)

    async def start(
        self,
        ref: str | ItemRef,
        inputs: Mapping[str, Any] | None = None,
        *,
        model: str | None = None,
        limits: Limits | Mapping[str, float] | None = None,
        idempotency_key: str | None = None,
        ctx: CallContext | None = None,
    ) -> "Thread":
        """Start a directive in a managed thread, and return as soon as it runs.

        Args:
            ref: `directive:ID`, or its bare id.
            inputs: The directive's inputs, each checked against its declared type.
            model: `provider/model`, or a tier or name of `agent/agent.yaml`.
            limits: What bounds it, above what the directive and configuration say.
            idempotency_key: A start repeated with it, here or elsewhere, finds its thread.
            ctx: On whose behalf; the host's own by default.

        Returns:
            The thread: its events, its result, its cost, and a way to stop it. It is cancelled
            when the Rye is closed.

        Raises:
            RyeError: Nothing runs: the Rye has no models or was not entered, or the directive
                can't be found, verified or afforded.
        """
        ctx = ctx or CallContext()
        key, start = idempotency_key, self._parts.execute.start
        call = partial(start, ref, inputs, model, limits, ctx, key)
        return await self._running.run(ref, call)

    async def recover(
        self,
        *,
        dry_run: bool = False,
        limits: Limits | Mapping[str, float] | None = None,
        ctx: CallContext | None = None,
    ) -> tuple[Recovered, ...]:
        """Resume all threads and runs of graphs whose process died, as tasks of this Rye.

        Those that were stopped, resumed already or started by another one are left out. Of several
        processes that do this at once, exactly one resumes each.

        Args:
            dry_run: Whether to list only what would be resumed.
            limits: The limits of each, as for `rye.threads.resume`.
            ctx: On whose behalf; the host's own by default.

        Returns:
            Each that died, with the handle of the run that resumes it, or why it can't be resumed.

        Raises:
            StateError: The registry can't be read.
        """
        parts, ctx = self._parts, ctx or CallContext()
        store, runs = parts.store.open_existing(), (self.threads, self.graphs)
        call = partial(recover_all, store, lambda: parts.threads, *runs, limits, ctx)
        return await self._running.run("threads", partial(call, dry_run=dry_run))

    async def trace(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ChainTrace:
        """Show a tool's chain and every decision that leads to it, and run nothing of it.

        Args:
            ref: `tool:ID`, or a bare id.
            ctx: On whose behalf; the host's own by default.

        Returns:
            The chain and the decisions.

        Raises:
            RyeError: The chain does not hold; the error carries the decisions so far.
        """
        call = partial(self._parts.execute.inspect, ref, ctx or CallContext())
        prepared = await self._running.run(ref, call)
        return ChainTrace(f"tool:{prepared.chain.head.item_id}", prepared.chain, prepared.events)

    async def schema(
        self, ref: str | ItemRef, *, ctx: CallContext | None = None
    ) -> Mapping[str, Any] | None:
        """The JSON Schema of a tool's parameters or a directive's inputs, verified like itself.

        Args:
            ref: `tool:ID`, `directive:ID`, or a bare id.
            ctx: On whose behalf; the host's own by default.

        Returns:
            The schema; None where a tool declares none, and so takes anything.

        Raises:
            RyeError: The tool's chain does not hold, or the directive can't be read.
        """
        call = partial(self._parts.execute.schema, ref, ctx or CallContext())
        return await self._running.run(ref, call)

    async def fetch(
        self,
        ref: str | ItemRef,
        *,
        source: Literal["project", "user", "system"] | None = None,
        destination: Literal["project", "user"] | None = None,
        overwrite: bool = False,
        ctx: CallContext | None = None,
    ) -> "FetchedItem":
        """Read one item of any kind, verified; copy it to another space where that is wished.

        Args:
            ref: `tool:ID`, `directive:ID`, `knowledge:ID` or `config:ID`.
            source: The one space to look in; by default the first that has it.
            destination: The space that gets a copy, signature and all, at the same place.
            overwrite: Whether the copy may replace another file.
            ctx: On whose behalf; the host's own by default. A model needs the capability, and the
                host's approval for a copy.

        Returns:
            The item, and the copies in other spaces that it shadows or is shadowed by.

        Raises:
            RyeError: It can't be found, doesn't verify, or can't be copied.
        """
        from ryecore.actions.fetch import FetchOptions  # noqa: PLC0415 - when it is needed

        options = FetchOptions(source, destination, overwrite)
        call = partial(self._parts.fetch, ref, options, ctx or CallContext())
        return await self._running.run(ref, call)

    async def search(
        self,
        query: str,
        *,
        scope: str | Sequence[str] = "*",
        source: Literal["project", "user", "system"] | None = None,
        limit: int = 10,
        offset: int = 0,
        records: bool = False,
        ctx: CallContext | None = None,
    ) -> "SearchResults":
        """Find items by their names, what they say of themselves, and what they hold.

        Args:
            query: Words; `AND`, `OR`, `NOT`, `"a phrase"`, `prefix*`, `title: word`; `*` for all.
            scope: `*`, a kind, or such as `tool.acme.*`; or a list of these.
            source: The one space to look in; all by default.
            limit: How many results at most, 1 to 100.
            offset: How many to pass over.
            records: Whether to look through the records of threads, too. A scope that names their
                folder, such as `knowledge.agent.threads.*`, does so without it.
            ctx: On whose behalf; the host's own by default. A model finds what it may fetch.

        Returns:
            The page, the best first and records last, each result verified just now.

        Raises:
            RyeError: The query, the scope or a number can't be used.
        """
        call = partial(
            self._parts.search, query, scope, source, limit, offset, ctx or CallContext(),
            records=records,
        )  # fmt: skip
        return await self._running.run(query, call)

    def sign(
        self,
        pattern: str | os.PathLike[str],
        *,
        space: Literal["project", "user"] = "project",
        ctx: CallContext | None = None,
    ) -> "SignReport":
        """Sign one item, or all that a glob matches, with the author's key.

        Args:
            pattern: `kind:id`, `kind:path.ext`, a glob such as `tool:acme/*`, or a file's path.
            space: Where to look.
            ctx: On whose behalf. Only the host's own calls may sign; see `request_signing`.

        Returns:
            What was signed, and what could not be.

        Raises:
            RyeError: There is no key, nothing matches, or a model asks for it.
        """
        return self._parts.sign(os.fspath(pattern), ctx or CallContext(), space=space)

    async def request_signing(
        self, pattern: str, *, ctx: CallContext, space: Literal["project", "user"] = "project"
    ) -> "SignReport":
        """Sign on behalf of a model, a tool or an MCP client, once the host has approved.

        Args:
            pattern: `kind:id`, `kind:path.ext` or a glob such as `tool:acme/*`.
            ctx: On whose behalf. It needs each item's `rye.sign.KIND.ID` by name.
            space: Where to look.

        Returns:
            What was signed: exactly the content that was approved.

        Raises:
            RyeError: It may not, the approval is missing or refused, or nothing matches.
        """
        call = partial(self._parts.sign.on_behalf, pattern, ctx, space=space)
        return await self._running.run(pattern, call)

    def verify(
        self, ref: str | os.PathLike[str], *, ctx: CallContext | None = None
    ) -> VerifiedItem:
        """Verify one item, and run nothing.

        Args:
            ref: A canonical ref, a bare id, `kind:path.ext`, or a file's path.
            ctx: On whose behalf; the host's own by default.

        Returns:
            The verified item. The record of a thread is refused: no author has signed it.

        Raises:
            RyeError: It can't be found, or doesn't verify.
        """
        return self._parts.verify(os.fspath(ref), ctx or CallContext())

    def verify_all(
        self,
        pattern: str,
        *,
        space: Literal["project", "user"] = "project",
        ctx: CallContext | None = None,
    ) -> "VerifyReport":
        """Verify every file that a glob matches, and run nothing.

        Args:
            pattern: A glob such as `tool:acme/*`, which recurses.
            space: Where to look.
            ctx: On whose behalf; the host's own by default.

        Returns:
            What verified, and what did not.

        Raises:
            RyeError: Nothing matches.
        """
        return self._parts.verify.all(pattern, space, ctx or CallContext())

    def trust_project(self) -> Path:
        """Trust this project's own interpreters, such as its `.venv/bin/python`, from now on.

        Returns:
            The signed file in user space that says so; removing it takes the trust back.

        Raises:
            SigningError: The author has no key to sign that with.
        """
        return trust_project(self.spaces.user, self.project, self.keys.load())

    async def aclose(self) -> None:
        """Cancel what still runs, and wait until none of its processes is left."""
        await self._running.aclose()
        await self._parts.tasks.stop()
        with anyio.CancelScope(shield=True):
            await self._parts.aclose()

    async def __aenter__(self) -> Self:
        await self._parts.tasks.open()
        if self._recovers:
            try:
                self.recovered = await self.recover()
            except BaseException:
                await self.__aexit__()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
        await self._parts.tasks.close()

    def __copy__(self) -> Self:
        """Return another Rye with the same settings, which shares nothing that is open."""
        return type(self)(copy(self._parts))

    def __repr__(self) -> str:
        return f"Rye({str(self.project)!r}{', closed' if self._running.is_closed else ''})"


def _pem(key: PublicKey | str | bytes) -> str:
    return (key if isinstance(key, PublicKey) else PublicKey.from_pem(key)).pem.decode()
