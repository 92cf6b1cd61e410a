"""A workspace whose directives run in threads on a scripted model."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ryecore import AgentRunnerDeps, Rye
from ryecore.llm.provider import LlmProvider
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_check import Record, read_records
from ryecore.testing import FunctionProvider, ScriptedProvider
from ryecore.tools import ToolDef, ToolRegistry, tool
from tests.workspace import Workspace

KEY = "sk-host-0123456789abcdef"


@tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def explode() -> str:
    """Raise."""
    raise RuntimeError("boom")


def directive(
    name: str,
    body: str = "Do it.",
    *,
    category: str = "acme",
    model: str = '<model id="m-1" provider="scripted"/>',
    limits: str = "",
    permissions: str = "<execute><tool>host/*</tool></execute>",
    inputs: str = "",
    outputs: str = "",
    more: str = "",
    root: str = "",
) -> str:
    """A directive file's text."""
    limits = f"<limits {limits}/>" if limits else ""
    permissions = f"<permissions>{permissions}</permissions>" if permissions else ""
    return f"""# {name}

```xml
<directive name="{name}" version="1.0.0"{root}>
  <metadata>
    <description>What {name} is for.</description>
    <category>{category}</category>
    <author>the author</author>
    {model}
    {limits}
    {permissions}
    {more}
  </metadata>
  <inputs>{inputs}</inputs>
  <outputs>{outputs}</outputs>
</directive>
```

{body}
"""


TOTAL = '<output name="total" type="integer" required="true">The sum.</output>'


class ScriptedHost:
    """A workspace with a model, and short ways to run threads in it.

    Attributes:
        workspace: The workspace.
        providers: The models by their provider's id; `scripted` is the script's.
        model: The scripted model.
    """

    def __init__(
        self,
        root: Path,
        *script: Any,
        model: LlmProvider | Callable[..., Any] | None = None,
        tools: Iterable[ToolDef] = (),
        **deps: Any,
    ) -> None:
        self.workspace = Workspace(root)
        if model is None:
            model = ScriptedProvider(script)
        elif not isinstance(model, LlmProvider):
            model = FunctionProvider(model, provider_id="scripted")
        self.model: Any = model
        self.providers: dict[str, LlmProvider] = {"scripted": model}
        self.slept_s: list[float] = []
        self._deps = {
            "resolve_provider": self.providers.get,
            "key_for": lambda _: KEY,
            "registry": ToolRegistry([add, explode, *tools]),
            "unpriced_models": frozenset({"scripted/*"}),
            "sleep": self._sleep,
        } | deps

    async def _sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)

    @property
    def deps(self) -> AgentRunnerDeps:
        """What the host injects."""
        return AgentRunnerDeps(**self._deps)

    def write(self, name: str, body: str = "Do it.", **more: Any) -> str:
        """Write and sign a directive; its canonical ref."""
        category, _, leaf = name.rpartition("/")
        self.workspace.write(
            f"directives/{name}.md", directive(leaf, body, category=category, **more)
        )
        return f"directive:{name}"

    def open(self, **options: Any) -> Rye:
        """A Rye of the workspace, with the model."""
        return self.workspace.open(**{"agent": self.deps} | options)

    async def run(self, ref: str, inputs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Open a Rye, run a directive's thread to its end, and close it."""
        async with self.open() as rye:
            return await rye.execute(ref, inputs, thread="fork", **options)

    def store(self) -> ThreadStore:
        """The workspace's threads, as another process would open them."""
        return ThreadStore.open(self.workspace.project / ".ai", self.workspace.user / ".ai")

    def records(self, thread_id: str, *kinds: str) -> list[Record]:
        """A transcript's records, of some types or all."""
        path = self.workspace.project / ".ai/state/threads" / thread_id / "transcript.jsonl"
        return [one for one in read_records(path) if not kinds or one.type in kinds]

    def said(self, request: int = -1) -> str:
        """All texts of a request that the model was asked."""
        return "\n".join(message.text for message in self.model.requests[request].messages)
