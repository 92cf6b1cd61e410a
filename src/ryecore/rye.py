"""`Rye`: an open project, the one entry to all that ryecore does."""

import os
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from ryecore.actions.request import ExecuteRequest
from ryecore.actions.settings import WARM_MEMORY_MIB, check_options
from ryecore.chain.config import HostConfig
from ryecore.chain.model import ChainTrace, ExecutionResult
from ryecore.items.project_trust import trust_project
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Space
from ryecore.items.verification import VerifiedItem
from ryecore.lillux.event_loop import shielded
from ryecore.lillux.keys import PublicKey
from ryecore.policy import CallContext
from ryecore.policy.environment import InheritEnv
from ryecore.runs.tasks import Running
from ryecore.wiring import Parts

if TYPE_CHECKING:
    from datetime import datetime

    from ryecore.actions.cluster import Cluster
    from ryecore.actions.costs import CostRows
    from ryecore.actions.fetch import FetchedItem
    from ryecore.actions.graphs import Graphs
    from ryecore.actions.maps import Map
    from ryecore.actions.mcp_servers import McpServers
    from ryecore.actions.recovering import Recovered
    from ryecore.actions.remotes import Remotes
    from ryecore.actions.sign import SignReport
    from ryecore.actions.threads import Threads
    from ryecore.actions.verify import VerifyReport
    from ryecore.agent.deps import AgentRunnerDeps
    from ryecore.agent.telemetry import Observer
    from ryecore.audit import Audit
    from ryecore.policy.authorization import Authorize
    from ryecore.policy.limits import Limits
    from ryecore.policy.permissions import Approve
    from ryecore.policy.reports import Ask
    from ryecore.search.model import SearchResults
    from ryecore.state.model import Durability
    from ryecore.threads.thread import Thread

__all__ = ["Rye"]


class Rye:
    """An open project, with the items of user space and of the system bundles.

    Open one with `Rye.open`, and close it: `async with Rye.open(".") as rye: ...`. Two open Ryes
    never see each other's state.

    Attributes:
        project: The project's folder.
        spaces: The spaces in which items are searched.
        trust: The keys that are trusted.
        keys: The signing key of the person who works here.
        env: The names of the project's `.env` that are set.
        configs: The configuration files of its spaces, layered, each verified when it is read.
        recovered: The threads and runs found dead when the Rye was entered, with `recover=True`.
    """

    def __init__(self, parts: Parts, *, recover: bool = False) -> None:
        self.project = parts.project
        self.spaces = parts.spaces
        self.trust = parts.trust
        self.keys = parts.keys
        self.env = parts.env
        self.configs = parts.configs
        self._parts = parts
        self._running = Running()
        self._recovers = recover
        self.recovered: tuple[Recovered, ...] = ()

    @cached_property
    def graphs(self) -> "Graphs":
        """The project's graphs, run in this process."""
        return self._parts.make_graphs(self._running)

    @cached_property
    def map(self) -> "Map":
        """Calls of one item for each of many rows: `await rye.map("directive:ID", rows)`."""
        return self._parts.make_map(self._running)

    @cached_property
    def mcp(self) -> "McpServers":
        """Tools of MCP servers: `tools=[*await rye.mcp("mcp/servers/time")]`."""
        return self._parts.make_mcp(self, self.verify, self._running)

    @cached_property
    def threads(self) -> "Threads":
        """The project's threads and runs, of this process and of others."""
        return self._parts.make_threads(self._running)

    @cached_property
    def remotes(self) -> "Remotes":
        """The nodes that the project knows."""
        return self._parts.make_remotes(self._running)

    @cached_property
    def cluster(self) -> "Cluster":
        """The workers of a state that machines share, and the runs in its queues."""
        return self._parts.make_cluster(self._running)

    @classmethod
    def open(
        cls,
        project_path: str | os.PathLike[str] = ".", *,
        user_space: str | os.PathLike[str] | None = None,
        system_spaces: Iterable[Space] | None = None,
        environ: Mapping[str, str] | None = None, inherit_env: InheritEnv = "safe",
        allow_env: Iterable[str] = (), trusted_keys: Iterable[PublicKey | str | bytes] = (),
        trust_project_interpreters: bool = False, config: HostConfig | None = None,
        cache_dir: str | os.PathLike[str] | None = None, approve: "Approve | None" = None,
        ask: "Ask | None" = None, authorize: "Authorize | None" = None,
        agent: "AgentRunnerDeps | None" = None, deps_factory: str | None = None,
        durability: "Durability" = "process", warm_memory_mib: int = WARM_MEMORY_MIB,
        recover: bool = False, observer: "Observer | None" = None, objects: str | None = None,
        audit: "str | os.PathLike[str] | Audit | None" = None, state: str | None = None,
    ) -> Self:  # fmt: skip
        """Open a project.

        Args:
            project_path: The project's folder, which may hold `.ai`.
            user_space: The folder with the user's `.ai`; by default `USER_SPACE`, else `HOME`.
            system_spaces: The system bundles; by default the built-in and the installed ones.
            environ: The environment that tools may inherit; this process's by default.
            inherit_env: What they inherit: `safe` leaves out what looks like a credential, `all`
                leaves out nothing, `none` passes only what a process needs; or names to pass.
            allow_env: Names of the project's `.env` for every tool; others need a signed element.
            trusted_keys: Public keys, or their PEM, that are trusted besides those of the spaces.
            trust_project_interpreters: Whether an interpreter inside the project may run.
            config: The host's configuration, by path below `.ai/config/`; it overrides files.
            cache_dir: The folder of sealed copies; by default one in user space.
            approve: Decides whether models, tools and MCP clients may sign or copy something.
            ask: Answers what tools ask, as far as their signed files declare it.
            authorize: Sends a person to log in where an MCP server wants that.
            agent: The models, keys and tools for directives' threads and agents in graphs.
            deps_factory: `package.module:function`, called in each process of a run: it returns
                options that can't be sent there, such as `approve` and `agent`.
            durability: What `.ai/state` survives: the end of the `process` or `machine`.
            warm_memory_mib: The most MiB for templates of warm starts; with 0, all start cold.
            recover: Whether to resume runs whose process died, on entry; see `recovered`.
            observer: Observes executes, and agents unless `agent` has an observer of its own.
            audit: The audit log: a file, by default that of `RYE_AUDIT`, or a function.
            state: The address of a PostgreSQL server for rows of threads; by default `RYE_STATE`.
            objects: Where large results are kept: the address of a bucket, `s3://bucket/prefix`, or
                of a PostgreSQL server, an absolute path, or `folder`; by default `RYE_OBJECTS`.

        Returns:
            The open Rye, an asynchronous context manager.

        Raises:
            ConfigError: The project, another path, a bundle or an option can't be used.
        """
        environ = dict(os.environ if environ is None else environ)
        settings = check_options(
            project_path, environ, user_space=user_space, system_spaces=system_spaces,
            inherit_env=inherit_env, allow_env=allow_env, trusted_keys=trusted_keys,
            trust_project_interpreters=trust_project_interpreters, config=config,
            cache_dir=cache_dir, deps_factory=deps_factory, durability=durability,
            warm_memory_mib=warm_memory_mib, audit=audit, state=state, objects=objects,
        )  # fmt: skip
        parts = Parts(settings, environ, approve, agent, observer, audit, ask, authorize)
        return cls(parts, recover=recover)

    async def execute(
        self, ref: str | ItemRef, parameters: Mapping[str, Any] | None = None, *,
        dry_run: bool = False, target: str = "local", thread: str = "inline",
        async_: bool = False, model: str | None = None,
        limits: "Limits | Mapping[str, float] | None" = None,
        timeout_s: float | None = None, trace: bool = False,
        output_log: str | os.PathLike[str] | None = None,
        idempotency_key: str | None = None, pull: bool = False,
        labels: Mapping[str, str] | None = None, ctx: CallContext | None = None,
    ) -> ExecutionResult:  # fmt: skip
        """Execute a tool in a process of its own, or a directive, verified first.

        Args:
            ref: `tool:ID`, `directive:ID`, or a bare id: the directive, else the tool.
            parameters: The tool's parameters, checked against its schema; or the directive's
                inputs, each checked against its declared type.
            dry_run: Whether to verify, validate and plan only.
            target: `local`; or a node, a queue or a Ray cluster: `remote` or `remote:NAME`.
            thread: `inline`; or for a directive `fork`, a managed thread with a model.
            async_: Whether to return at once; the run has a process of its own.
            model: For a directive: `provider/model`, or a tier or name of `agent/agent.yaml`.
            limits: For a directive or a graph: limits, such as `{"turns": 8}`.
            timeout_s: For a tool: the seconds after which its process group is ended.
            trace: Whether the result carries the events of every decision.
            output_log: A file to which a tool's output is written, too.
            idempotency_key: With `async_` or `fork`: a repeated start finds the first one's run.
            pull: On a node: whether to collect changed project files, for `rye.threads.pull`.
            labels: What the run is for, such as `{"tenant": "acme"}`; children inherit them.
            ctx: The caller; the host itself by default, which may do everything.

        Returns:
            The result; a tool that ran and failed has the status `error`. That of a directive is a
            `DirectiveResult` or a `ThreadResult`.

        Raises:
            RyeError: Nothing ran. The error says why and what to do.
        """
        log = None if output_log is None else os.fspath(output_log)
        request = ExecuteRequest(
            ref, parameters, dry_run, target, thread, async_, model, limits, timeout_s,
            trace, log, idempotency_key, pull=pull,
        )  # fmt: skip
        call = partial(self._parts.execute, request, (ctx or CallContext()).labelled(labels))
        return await self._running.run(ref, call)

    async def start(
        self, ref: str | ItemRef, inputs: Mapping[str, Any] | None = None, *,
        target: str = "local", model: str | None = None,
        limits: "Limits | Mapping[str, float] | None" = None,
        idempotency_key: str | None = None, pull: bool = False,
        labels: Mapping[str, str] | None = None, ctx: CallContext | None = None,
    ) -> "Thread":  # fmt: skip
        """Start a directive in a managed thread, and return as soon as it runs.

        Args:
            ref: `directive:ID`, or its bare id.
            inputs: The directive's inputs, each checked against its declared type.
            target: Where it runs: `local`, `remote` or `remote:NAME`, as for `execute`.
            model: `provider/model`, or a tier or name of `agent/agent.yaml`.
            limits: Limits that override those of the directive and the configuration.
            idempotency_key: A repeated start, in any process, finds the first thread.
            pull: Whether to collect changed project files, as `execute` does.
            labels: What the thread is for, as `execute` takes them.
            ctx: The caller; the host itself by default.

        Returns:
            The thread's handle. The thread is cancelled when the Rye is closed.

        Raises:
            RyeError: Nothing runs: for example, the Rye was not entered.
        """
        request = ExecuteRequest(
            ref, inputs, target=target, thread="fork", model=model, limits=limits,
            idempotency_key=idempotency_key, pull=pull,
        )  # fmt: skip
        call = partial(self._parts.execute.start, request, (ctx or CallContext()).labelled(labels))
        return await self._running.run(ref, call)

    async def recover(
        self, *, dry_run: bool = False,
        limits: "Limits | Mapping[str, float] | None" = None, ctx: CallContext | None = None,
    ) -> "tuple[Recovered, ...]":  # fmt: skip
        """Resume all threads and graph runs whose process died, as tasks of this Rye.

        Runs that were stopped, were resumed already or have a parent are left out. Where several
        processes do this at once, exactly one resumes each run.

        Args:
            dry_run: Whether to list what would be resumed, and resume nothing.
            limits: The limits of each run, as for `rye.threads.resume`.
            ctx: The caller; the host itself by default.

        Returns:
            Each dead run, with the handle of the run that resumes it, or the reason why none can.

        Raises:
            StateError: The registry can't be read.
        """
        from ryecore.actions.recovering import recover  # noqa: PLC0415 - seldom needed

        store, runs = self._parts.store.open_existing(), (self.threads, self.graphs)
        call = partial(recover, store, *runs, limits, ctx or CallContext(), dry_run=dry_run)
        return await self._running.run("threads", call)

    async def costs(
        self, *, by: str = "directive", since: "str | datetime | None" = None,
        labels: Mapping[str, str] | None = None,
    ) -> "CostRows":  # fmt: skip
        """Sum what threads and graphs have cost, each without its children.

        Args:
            by: `directive`, `model`, `day`, `label`, or `label:NAME` such as `label:tenant`.
            since: From when on they count: an age such as `30d`, or a date or time (in UTC).
            labels: The labels that they must have.

        Returns:
            The rows, the dearest first, days in order; `pandas.DataFrame(rows)` takes them.

        Raises:
            InputError: An argument can't be used.
            StateError: The registry can't be read.
        """
        from ryecore.actions.costs import sum_costs  # noqa: PLC0415 - seldom needed

        call = partial(sum_costs, self._parts.store.open_existing, by, since, labels)
        return await self._running.run("threads", call)

    async def trace(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ChainTrace:
        """Build a tool's chain, record every decision, and run nothing.

        Args:
            ref: `tool:ID`, or a bare id.
            ctx: The caller; the host itself by default.

        Returns:
            The chain and the decisions.

        Raises:
            RyeError: The chain is invalid; the error carries the decisions so far.
        """
        call = partial(self._parts.execute.inspect, ref, ctx or CallContext())
        prepared = await self._running.run(ref, call)
        return ChainTrace(f"tool:{prepared.chain.head.item_id}", prepared.chain, prepared.events)

    async def schema(
        self, ref: str | ItemRef, *, ctx: CallContext | None = None
    ) -> Mapping[str, Any] | None:
        """Return the verified JSON Schema of a tool's parameters or a directive's inputs.

        Args:
            ref: `tool:ID`, `directive:ID`, or a bare id.
            ctx: The caller; the host itself by default.

        Returns:
            The schema; None where a tool declares none, and so takes any parameters.

        Raises:
            RyeError: The tool's chain is invalid, or the directive can't be read.
        """
        call = partial(self._parts.execute.schema, ref, ctx or CallContext())
        return await self._running.run(ref, call)

    async def fetch(
        self, ref: str | ItemRef, *,
        source: Literal["project", "user", "system"] | None = None,
        destination: Literal["project", "user"] | None = None,
        overwrite: bool = False, ctx: CallContext | None = None,
    ) -> "FetchedItem":  # fmt: skip
        """Read one verified item of any kind, and copy it to another space on request.

        Args:
            ref: `tool:ID`, `directive:ID`, `knowledge:ID` or `config:ID`.
            source: The only space to search; by default the first that holds it.
            destination: The space that gets a copy, with its signature, at the same place.
            overwrite: Whether the copy may replace another file.
            ctx: The caller; the host itself by default. A model needs the capability, and the
                host's approval for a copy.

        Returns:
            The item, and the copies in other spaces that it shadows or is shadowed by.

        Raises:
            RyeError: The item can't be found, verified or copied.
        """
        call = partial(
            self._parts.fetch, ref, ctx or CallContext(),
            source=source, destination=destination, overwrite=overwrite,
        )  # fmt: skip
        return await self._running.run(ref, call)

    async def search(
        self, query: str, *, scope: str | Sequence[str] = "*",
        source: Literal["project", "user", "system"] | None = None,
        limit: int = 10, offset: int = 0, records: bool = False, ctx: CallContext | None = None,
    ) -> "SearchResults":  # fmt: skip
        """Find items by name, description and content.

        Args:
            query: Words, with `AND`, `OR`, `NOT`, `"a phrase"`, `prefix*`, `title: word`; `*` for
                all.
            scope: `*`, a kind, or a pattern such as `tool.acme.*`; or a list of these.
            source: The only space to search; all by default.
            limit: The most results, 1 to 100.
            offset: The number of results to skip.
            records: Whether to search the records of threads, too. A scope that names their
                folder, such as `knowledge.agent.threads.*`, does so without it.
            ctx: The caller; the host itself by default. A model finds what it may fetch.

        Returns:
            The page, the best results first and records last, each verified just now.

        Raises:
            RyeError: The query, the scope or a number is invalid.
        """
        call = partial(
            self._parts.search, query, scope, source, limit, offset, ctx or CallContext(),
            records=records,
        )  # fmt: skip
        return await self._running.run(query, call)

    def sign(
        self, pattern: str | os.PathLike[str], *,
        space: Literal["project", "user"] = "project", ctx: CallContext | None = None,
    ) -> "SignReport":  # fmt: skip
        """Sign one item, or all that a glob matches, with the author's key.

        Args:
            pattern: `kind:id`, `kind:path.ext`, a glob such as `tool:acme/*`, or a file's path.
            space: The space to search.
            ctx: The caller. Only the host itself may sign; see `request_signing`.

        Returns:
            The items that were signed, and those that could not be.

        Raises:
            RyeError: There is no key, nothing matches, or the caller is a model.
        """
        return self._parts.sign(os.fspath(pattern), ctx or CallContext(), space=space)

    async def request_signing(
        self, pattern: str, *, ctx: CallContext, space: Literal["project", "user"] = "project"
    ) -> "SignReport":
        """Sign for a model, a tool or an MCP client, once the host has approved.

        Args:
            pattern: `kind:id`, `kind:path.ext` or a glob such as `tool:acme/*`.
            ctx: The caller. It needs the capability `rye.sign.KIND.ID` of each item, by name.
            space: The space to search.

        Returns:
            The items that were signed, with exactly the content that was approved.

        Raises:
            RyeError: The caller lacks the capability or the approval, or nothing matches.
        """
        call = partial(self._parts.sign.on_behalf, pattern, ctx=ctx, space=space)
        return await self._running.run(pattern, call)

    def verify(
        self, ref: str | os.PathLike[str], *, ctx: CallContext | None = None
    ) -> VerifiedItem:
        """Verify one item, and run nothing.

        Args:
            ref: A canonical ref, a bare id, `kind:path.ext`, or a file's path.
            ctx: The caller; the host itself by default.

        Returns:
            The verified item. A thread's record is refused, because no author signed it.

        Raises:
            RyeError: The item can't be found or verified.
        """
        return self._parts.verify(os.fspath(ref), ctx or CallContext())

    def verify_all(
        self, pattern: str, *, space: Literal["project", "user"] = "project",
        ctx: CallContext | None = None,
    ) -> "VerifyReport":  # fmt: skip
        """Verify every file that a glob matches, and run nothing.

        Args:
            pattern: A glob such as `tool:acme/*`, which recurses.
            space: The space to search.
            ctx: The caller; the host itself by default.

        Returns:
            The files that verified, and those that did not.

        Raises:
            RyeError: Nothing matches.
        """
        return self._parts.verify.all(pattern, space, ctx or CallContext())

    def trust_project(self) -> Path:
        """Trust this project's own interpreters, such as its `.venv/bin/python`, from now on.

        Returns the signed file in user space that records the trust; removing it takes it back.
        """
        return trust_project(self.spaces.user, self.project, self.keys.load())

    async def aclose(self) -> None:
        """Cancel what still runs, and wait until none of its processes is left."""
        await self._running.aclose()
        await self._parts.tasks.stop()
        with shielded():
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
