"""Run graphs in an open Rye.

Source: docs/design/runtimes.md#state-graphs; decision 30.
"""

from ryecore.errors import AlreadyStarted, ConfigError, RyeError
from ryecore.graph.earlier import EarlierRun
from ryecore.graph.host import GraphHost
from ryecore.graph.lifecycle.life import GraphLife
from ryecore.graph.loading import LoadedGraph
from ryecore.graph.reading import GraphReport
from ryecore.graph.result import GraphResult
from ryecore.graph.run import GraphRun
from ryecore.graph.wish import GraphWish
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.runs.earlier import wait_for_earlier
from ryecore.runs.tasks import Tasks

__all__ = ["GraphService"]


class GraphService:
    """The runs of one open Rye.

    Args:
        host: What they have in common.
        tasks: Where runs go on that nobody waits for.
    """

    def __init__(self, host: GraphHost, tasks: Tasks) -> None:
        self._host = host
        self._tasks = tasks

    async def load(self, ref: ItemRef, ctx: CallContext) -> LoadedGraph:
        """Load a graph, and run nothing of it.

        Raises:
            RyeError: It can't be found, verified or read.
        """
        return await self._host.load(ref, ctx)

    async def examine(self, ref: ItemRef, ctx: CallContext) -> tuple[GraphReport, str]:
        """Tell all that is wrong with a graph's file, or looks so; and give its text.

        Raises:
            RyeError: It can't be found, verified or parsed, or is no graph.
        """
        return await self._host.examine(ref, ctx)

    async def forget_results(self) -> int:
        """Forget the results that nodes remember; how many there were.

        Raises:
            StateError: They can't be removed.
        """
        cache = self._host.cache
        return 0 if cache is None else await cache.clear()

    async def check(self, wish: GraphWish, ctx: CallContext) -> None:
        """Check whether a run can begin. Nothing is changed.

        Raises:
            RyeError: It can't.
        """
        await GraphLife(self._host, wish, ctx).check()

    async def run(self, wish: GraphWish, ctx: CallContext) -> GraphResult:
        """Run a graph to its end.

        Returns:
            What came of it; a run that failed is a result too. Of one that was started before with
            the same idempotency key, what came of that one.

        Raises:
            CallCancelled: It waited for an earlier run, and was cancelled or out of time.
            RyeError: Nothing ran.
        """

        async def run() -> GraphResult:
            life = GraphLife(self._host, wish, ctx)
            try:
                await life.begin()
            except AlreadyStarted as found:
                return await wait_for_earlier(await self._earlier(found.thread_id, wish, ctx), ctx)
            result = await life.finish()
            await self._host.prune()
            return result

        return await self._host.supervisor.during(self._tasks, run)

    async def start(self, wish: GraphWish, ctx: CallContext) -> GraphRun:
        """Start a run, and return as soon as it goes on; or find the one that its key started.

        Raises:
            RyeError: Nothing runs.
        """
        if not self._tasks.are_possible:
            raise ConfigError(
                "A run that goes on by itself needs a Rye that is entered.",
                next_step="Write `async with Rye.open(...) as rye:`.",
            )
        self._host.supervisor.start(self._tasks)
        life = GraphLife(self._host, wish, ctx)
        try:
            await life.begin()
        except AlreadyStarted as found:
            return GraphRun(self._host, await self._earlier(found.thread_id, wish, ctx))
        run = GraphRun(self._host, life)
        self._tasks.start_soon(self._settled, run)
        return run

    async def _earlier(self, run_id: str, wish: GraphWish, ctx: CallContext) -> EarlierRun:
        try:
            loaded: LoadedGraph | RyeError = await self._host.load(wish.ref, ctx)
        except RyeError as error:  # what became of its file doesn't matter to a run that there is
            loaded = error
        return EarlierRun(self._host, run_id, str(wish.ref), loaded)

    async def _settled(self, run: GraphRun) -> None:
        await run.settle()
        await self._host.prune()
