"""The interface `rye.map`: one item called for each of many rows."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import evolve

from ryecore.convert.lines import check_mapping
from ryecore.display.text import counted
from ryecore.errors import InputError, RyeError
from ryecore.graph.map_result import MapReport, fields_of
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.limits import Limits
from ryecore.runs.request import GraphOptions, MapOptions, ResumeOptions, RunRequest, parse_limits
from ryecore.runs.tasks import Running
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.graph.map_progress import ShowProgress
    from ryecore.graph.run import GraphService
    from ryecore.state.store import ThreadStore

__all__ = ["Map", "MapResult"]

Row: TypeAlias = Mapping[str, object]
Checker: TypeAlias = Callable[
    [str | ItemRef, CallContext],
    Awaitable[tuple[ItemRef, Callable[[Row], Awaitable[object]]]],
]
"""Returns an item's ref, and the check of inputs that a call of it makes."""

Progress: TypeAlias = "bool | ShowProgress | None"
"""Whether to show how far a map has come, or what shows it; None for where a person looks."""

DEFAULT_CONCURRENCY: Final = 10
_MOST_AT_ONCE: Final = 1_000
_MOST_SHOWN: Final = 5


class MapResult(MapReport):
    """The result of `rye.map`: a row for each row that it was given, and what it cost."""

    _map: "Map"

    def __init__(self, report: MapReport, of: "Map") -> None:
        super().__init__(**fields_of(report))
        object.__setattr__(self, "_map", of)

    async def retry_failed(
        self, *, limits: Limits | Mapping[str, float] | None = None, progress: Progress = None,
        ctx: CallContext | None = None,
    ) -> "MapResult":  # fmt: skip
        """Run the rows again that did not complete, and no others, in a new run.

        A row that was interrupted may have taken effect already; it is run again, too.

        Args:
            limits: New limits, which count from zero; by default what is left of the first ones.
            progress: Whether to show how far it has come, as for `rye.map`.
            ctx: The caller; the host itself by default.

        Returns:
            The whole result, in the order of all rows; this one where all have completed.

        Raises:
            RyeError: Nothing runs: for example, the Rye was closed.
        """
        if all(one.status == "completed" for one in self.results):
            return self
        return await self._map.retry_failed(self.run_id, limits=limits, progress=progress, ctx=ctx)


class Map:
    """Calls of one item for each of many rows: `rye.map`.

    A map is a run of a graph with one foreach. It has a budget and a journal, is listed with other
    runs, and can be resumed after its process was killed: rows that are done don't run again.
    """

    def __init__(
        self,
        running: Running,
        service: "Callable[[], GraphService]",
        store: "Callable[[], ThreadStore | None]",
        checker: Checker,
    ) -> None:
        self._running = running
        self._service = service
        self._store = store
        self._checker = checker

    async def __call__(
        self, ref: str | ItemRef, rows: Iterable[Mapping[str, Any]], *,
        concurrency: int = DEFAULT_CONCURRENCY, model: str | None = None,
        limits: Limits | Mapping[str, float] | None = None,
        labels: Mapping[str, str] | None = None, progress: Progress = None,
        ctx: CallContext | None = None,
    ) -> MapResult:  # fmt: skip
        """Call an item for each row, several at once, and return all results in order.

        All rows are checked against the item's inputs before the first one runs. A row that fails
        doesn't end the others.

        Args:
            ref: A directive, which runs in a thread for each row; or a tool, such as a graph.
            rows: The inputs of each call, by their names: dicts of JSON.
            concurrency: The most rows at once, from 1 to 1,000.
            model: For a directive: `provider/model`, or a tier or name of `agent/agent.yaml`.
            limits: Limits of the whole map, such as `Limits(spend_usd=0.5)`.
            labels: What the map is for, such as `{"tenant": "acme"}`; its threads inherit them.
            progress: Whether to show how far it has come, or a function that shows a
                `MapProgress`; by default it is shown on a terminal and in a notebook.
            ctx: The caller; the host itself by default.

        Returns:
            The rows with their outputs, errors and costs, also where the map was stopped.

        Raises:
            InputError: There are no rows, or some don't fit the item; each is named by its index.
            RyeError: The item can't be found or verified, or nothing ran for another reason.
        """
        context = (ctx or CallContext()).labelled(labels)
        at_once = _checked_concurrency(concurrency)

        async def run() -> MapResult:
            item, check = await self._checker(ref, context)
            given = await _checked_rows(item, rows, check)
            options = MapOptions(item, at_once, model)
            request = _request(limits, options=options, rows=given)
            return await self._ended(request, context, str(item), progress)

        return await self._running.run(ref, run)

    async def resume(
        self, run_id: str, *, rerun: bool = False,
        limits: Limits | Mapping[str, float] | None = None, progress: Progress = None,
        ctx: CallContext | None = None,
    ) -> MapResult:  # fmt: skip
        """Continue a map that was killed or stopped: rows that are done don't run again.

        What was running when its process was killed may have taken effect. It isn't repeated by
        itself: `rye graph resume` takes the outcomes of such rows one by one.

        Args:
            run_id: The run of the map: its id, or an unambiguous beginning or end of it.
            rerun: Whether to run the rows again that had begun and have no known end.
            limits: New limits, which count from zero; by default what is left of the first ones.
            progress: Whether to show how far it has come, as for `rye.map`.
            ctx: The caller; the host itself by default.

        Returns:
            The whole result, in the order of all rows.

        Raises:
            ThreadConflict: The map hasn't ended, or another run has resumed it.
            StateError: Its records were altered, or the end of rows isn't known.
            RyeError: Nothing runs.
        """
        return await self._resume(run_id, ResumeOptions("", rerun=rerun), limits, progress, ctx)

    async def retry_failed(
        self, run_id: str, *, limits: Limits | Mapping[str, float] | None = None,
        progress: Progress = None, ctx: CallContext | None = None,
    ) -> MapResult:  # fmt: skip
        """Run the rows of an ended map again that did not complete; see `MapResult.retry_failed`.

        Args:
            run_id: The run of the map: its id, or an unambiguous beginning or end of it.
            limits: New limits, which count from zero; by default what is left of the first ones.
            progress: Whether to show how far it has come, as for `rye.map`.
            ctx: The caller; the host itself by default.

        Returns:
            The whole result, in the order of all rows.

        Raises:
            RyeError: Nothing runs.
        """
        options = ResumeOptions("", at=0, failed=True, rerun=True)
        return await self._resume(run_id, options, limits, progress, ctx)

    async def show(self, run_id: str) -> MapResult:
        """Read the result of a map, as far as it has come, in this process or another.

        Args:
            run_id: The run of the map: its id, or an unambiguous beginning or end of it.

        Raises:
            ThreadNotFound: No run has this id.
            InputError: The run isn't one of a map.
        """

        async def read() -> MapResult:
            store, found = await self._find(run_id)
            return await self._read(store, found)

        return await self._running.run(run_id, read)

    async def _resume(
        self,
        run_id: str,
        options: ResumeOptions,
        limits: Limits | Mapping[str, float] | None,
        progress: Progress,
        ctx: CallContext | None,
    ) -> MapResult:
        async def resume() -> MapResult:
            store, found = await self._find(run_id)
            item_id = (await self._read(store, found)).item_id  # refuses another graph's run
            resumes = evolve(options, run_id=found)
            request = _request(limits, resumes=resumes)
            return await self._ended(request, ctx or CallContext(), item_id, progress)

        return await self._running.run(run_id, resume)

    async def _ended(
        self, request: RunRequest, ctx: CallContext, item_id: str, progress: Progress
    ) -> MapResult:
        """Run a map to its end, and read its result from its journal."""
        from ryecore.graph.map_progress import progress_view  # noqa: PLC0415 - only for maps

        with ExitStack() as stack:
            view = progress_view(item_id, progress, stack)
            done = await self._service().run(request, ctx, None if view is None else view.watch)
        store, found = await self._find(done.run_id)
        return await self._read(store, found)

    async def _read(self, store: "ThreadStore", run_id: str) -> MapResult:
        from ryecore.graph.map_reading import read_map  # noqa: PLC0415 - only for maps

        return MapResult(await read_map(store, run_id), self)

    async def _find(self, run_id: str) -> "tuple[ThreadStore, str]":
        from ryecore.state.model import thread_not_found  # noqa: PLC0415 - only for maps

        store = await run_in_thread(self._store)
        if store is None or not run_id:
            raise thread_not_found(run_id)
        return store, await store.find(run_id)


def _request(
    limits: Limits | Mapping[str, float] | None,
    *,
    options: MapOptions | None = None,
    rows: Sequence[Row] = (),
    resumes: ResumeOptions | None = None,
) -> RunRequest:
    from ryecore.graph.mapping import MAP_REF, ROWS  # noqa: PLC0415 - only for maps

    state = {} if options is None else {ROWS: rows}
    graph = GraphOptions(map=options, state=state, resumes=resumes)
    return RunRequest(MAP_REF, limits=parse_limits(limits), graph=graph)


def _checked_concurrency(concurrency: int) -> int:
    if type(concurrency) is int and 1 <= concurrency <= _MOST_AT_ONCE:
        return concurrency
    raise InputError(
        f"concurrency is {concurrency!r}, not a whole number from 1 to {_MOST_AT_ONCE:,}.",
        next_step="Pass such as concurrency=20.",
    )


async def _checked_rows(
    item: ItemRef, rows: Iterable[Mapping[str, Any]], check: Callable[[Row], Awaitable[object]]
) -> list[dict[str, Any]]:
    """Return the rows as a list; refuse those that don't fit the item, by their indexes."""
    given = _listed(rows)
    problems: list[str] = []
    next_step, count = "", 0
    for index, row in enumerate(given):
        try:
            known = {
                name: one for name, one in check_mapping(row, "A row").items() if one is not None
            }
            for name, one in known.items():
                _check_json(name, one)
            await check(known)
        except RyeError as error:
            failures = getattr(error, "failures", ())
            said = "; ".join(map(str, failures)) or error.message
            next_step = next_step or error.next_step
        else:
            continue
        count += 1
        if count <= _MOST_SHOWN:
            problems.append(f"row {index}: {said.rstrip('.')}")
    if count:
        more = f"\n… and {count - _MOST_SHOWN:,} more" if count > _MOST_SHOWN else ""
        raise InputError(
            f"{count:,} of {counted(len(given), 'row')} {'does' if count == 1 else 'do'} not fit "
            f"{item}:\n" + "\n".join(problems) + more,
            next_step=next_step,
        )
    return [dict(row) for row in given]


def _check_json(name: str, value: object) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"{name}: it isn't JSON: {problem}",
            next_step="Pass dicts of text, numbers, booleans, None, lists and dicts, as "
            'df.to_dict("records") gives them; of NaN pass None.',
        ) from None


def _listed(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    is_frame = hasattr(rows, "to_dict")  # iterating over one gives the names of its columns
    is_wrong = is_frame or isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable)
    given = [] if is_wrong else list(rows)
    if given:
        return given
    raise InputError(
        f"Rows are a list of dicts, not a {type(rows).__name__}."
        if is_wrong
        else "There are no rows.",
        next_step='Pass such as [{"text": "one"}, {"text": "two"}]; of a DataFrame, '
        'df.to_dict("records").',
    )
