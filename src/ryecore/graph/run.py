"""GraphRun: the handle of a run that was started."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio

from ryecore.errors import RyeClosed
from ryecore.graph.earlier import EarlierRun
from ryecore.graph.host import GraphHost
from ryecore.graph.journal.events import GraphEvent
from ryecore.graph.lifecycle.life import GraphLife
from ryecore.graph.model import Graph
from ryecore.graph.result import GraphResult
from ryecore.policy.budget import Amount
from ryecore.state.model import ThreadRecord
from ryecore.state.thread_file import TRANSCRIPT

__all__ = ["GraphRun"]


class GraphRun:
    """A graph's run: what happens in it, what comes of it, and what it costs.

    `rye.graphs.start` makes it. It goes on whether somebody listens or not, until it ends, is
    cancelled, or the Rye that started it is closed.

    Attributes:
        run_id: What `rye.graphs`, `rye.threads` and the command line know it by.
        item_id: The graph, as a canonical ref.
    """

    def __init__(self, host: GraphHost, life: GraphLife | EarlierRun) -> None:
        self._host = host
        self._life = life
        self._result: GraphResult | None = None
        self._failed: Exception | None = None
        self._ended = anyio.Event()
        self.run_id = life.run_id
        self.item_id = life.item_id

    @property
    def graph(self) -> Graph:
        """Its graph, as it runs; of a run found by its idempotency key, as the file is now.

        Raises:
            RyeError: It is such a run, and the graph can't be loaded any more.
        """
        return self._life.graph

    @property
    def record(self) -> ThreadRecord:
        """Its row in the registry, as it is now."""
        return self._host.store.look(self.run_id)

    @property
    def status(self) -> str:
        """Where it stands: running, completed, error, cancelled or killed."""
        return self.record.status

    @property
    def is_earlier(self) -> bool:
        """Whether an earlier start with the same idempotency key began it."""
        return isinstance(self._life, EarlierRun)

    @property
    def cost(self) -> Amount:
        """The money and the tokens that it and all below it have used."""
        return self._life.total

    async def events(self) -> AsyncGenerator[GraphEvent, None]:
        """What happens in it, from its beginning until its end.

        Yields:
            The records of its journal, as they come.
        """
        async with aclosing(self._life.events()) as events:
            async for event in events:
                yield event

    async def result(self) -> GraphResult:
        """Wait until it has ended.

        Raises:
            RyeClosed: The Rye was closed before that.
            RyeError: It ended, but that could not be written.
        """
        if isinstance(self._life, EarlierRun):
            return await self._life.result()
        await self._ended.wait()
        if self._result is None:
            raise self._failed or RuntimeError("It ended without a result.")
        return self._result

    def cancel(self) -> None:
        """Ask it, and all below, to stop. It doesn't wait for that."""
        self._life.cancel()

    async def settle(self) -> None:
        """Carry it to its end; the service calls this for a run that it has begun."""
        if isinstance(self._life, EarlierRun):
            return
        try:
            self._result = await self._life.finish()
        except Exception as error:
            self._failed = error
        except BaseException:  # who waits elsewhere isn't cancelled with it
            self._failed = RyeClosed(
                f"The Rye was closed while {self.run_id} ran.",
                next_step=f"Go on with it: rye graph resume {self.run_id}",
            )
            raise
        finally:
            self._ended.set()

    def __repr__(self) -> str:
        return f"GraphRun({self.run_id!r})"

    def _repr_html_(self) -> str:
        if self._result is not None:
            return self._result._repr_html_()
        from ryecore.graph.live import run_html  # noqa: PLC0415 - for notebooks alone

        # It is shown between two cells: nothing is settled, and nobody is waited for.
        path = self._host.store.folder_of(self.run_id) / TRANSCRIPT
        return run_html(self.graph, self.run_id, path)
