"""The definition of a tool."""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from attrs import evolve, field, fields

from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.lillux.schema import SchemaValidator
from ryecore.llm.request import ToolSpec
from ryecore.tools.arguments import hide_config, unfit_config
from ryecore.tools.context import ToolContext
from ryecore.tools.functions import FunctionRunner, read_function
from ryecore.tools.policy import ToolPolicy

if TYPE_CHECKING:
    from ryecore.tools.items import ItemExecutor

__all__ = [
    "FunctionTool",
    "ToolDef",
    "ToolFunction",
    "ToolOptions",
    "ToolOrigin",
    "same_tool",
    "tool",
]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")

ToolFunction: TypeAlias = Callable[[Mapping[str, Any], ToolContext[Any]], Awaitable[object]]
ToolOrigin: TypeAlias = Literal["function", "item", "mcp"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@lru_cache(maxsize=1_024)  # each thread has its own tools with equal definitions
def _validator(schema_json: str) -> SchemaValidator:
    return SchemaValidator(schema_json)


def _names(names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise TypeError(f"Write a set of names, not the text {names!r}.")
    return frozenset(names)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value,) if value else ()
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


class ToolOptions(TypedDict, total=False):
    """Options of a tool that is made of a function or an item.

    Attributes:
        parallel_safe: Whether it may run in parallel with others of the same turn; None for what
            `ToolDef.runs_in_parallel` says.
        timeout_s: Its time limit in seconds; None for the registry's.
        config: Arguments that the host sets. The model can't see or change them.
        policy: The commands, domains and paths that its arguments may name.
        needs_approval: Whether a person is asked before each run.
        needs: The host's capabilities that it needs, such as `net` or `fs`.
        untrusted: Whether its results may have untrusted text.
        read_only: Whether its calls change nothing, so that one that was broken off may simply be
            made again. In a thread, none waits for the record of its intent.
    """

    parallel_safe: bool | None
    timeout_s: float | None
    config: Mapping[str, Any]
    policy: ToolPolicy
    needs_approval: bool
    needs: Iterable[str]
    untrusted: bool
    read_only: bool


@frozen(eq=False, kw_only=True, repr=False)
class ToolDef:
    """A tool for models.

    Attributes:
        name: Its name for the model: 1 to 64 of `A-Z a-z 0-9 _ -`, which every vendor takes.
        description: Its description for the model.
        parameters: The JSON Schema of its arguments, which are an object.
        run: Runs it with arguments that fit the schema.
        parallel_safe: Whether it may run in parallel with others of the same turn; None for what
            `ToolDef.runs_in_parallel` says.
        timeout_s: Its time limit in seconds; None for the registry's.
        config: Arguments that the host sets. The model can't see or change them.
        policy: The commands, domains and paths that its arguments may name.
        needs_approval: Whether a person is asked before each run.
        capability: The capability that the caller needs, such as `rye.execute.tool.acme.x`.
        needs: The host's capabilities that it needs, such as `net` or `fs`.
        untrusted: Whether its results may have untrusted text.
        read_only: Whether its calls change nothing, so that one that was broken off may simply be
            made again. In a thread, none waits for the record of its intent.
        origin: Its origin. The description of a tool from `mcp` is untrusted text.
        source: Its exact source, for people.

    Raises:
        ValueError: The name, the schema or `config` can't be used.
    """

    name: str = field()
    description: str
    parameters: Mapping[str, Any] = field()
    run: ToolFunction = field()
    parallel_safe: bool | None = None
    timeout_s: float | None = field(default=None)
    config: Mapping[str, Any] = field(factory=dict)
    policy: ToolPolicy = field(factory=ToolPolicy)
    needs_approval: bool = False
    capability: str | None = None
    needs: frozenset[str] = field(default=frozenset(), converter=_names)
    untrusted: bool = True
    read_only: bool = False
    origin: ToolOrigin = "function"
    source: str = ""

    def __attrs_post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(
                f"{self.name!r} isn't a name for a tool: use 1 to 64 of A-Z, a-z, 0-9, _ and -."
            )
        if not callable(self.run):
            raise TypeError(f"The tool {self.name} needs `run`, a function.")
        if not isinstance(self.parameters, Mapping):
            raise TypeError(f"The parameters of {self.name} must be a mapping: a JSON Schema.")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(
                f"The timeout of {self.name} must be more than 0 s, not {self.timeout_s!r} s."
            )
        properties = self.parameters.get("properties")
        if isinstance(properties, Mapping) and properties:
            is_closed = self.parameters.get("additionalProperties") is False
            for argument in (*self.policy.arguments, *(self.config if is_closed else ())):
                if argument not in properties:
                    raise ValueError(
                        f"{self.name} has no parameter {argument!r}. Its parameters are: "
                        f"{', '.join(properties)}."
                    )
        try:
            _ = self.schema
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The parameters of {self.name} aren't a valid JSON Schema: {error}"
            ) from None
        if self.config:
            unfit = unfit_config(self.config, self.schema)
            if unfit:
                raise ValueError(
                    f"The config of {self.name} doesn't fit its schema: {', '.join(unfit)}."
                )

    @cached_property
    def runs_in_parallel(self) -> bool:
        """Whether its calls may run in parallel with others of the same turn.

        As `parallel_safe` says; without it, those of async functions. Never where a person may be
        asked first.
        """
        if self.needs_approval or self.policy.unlisted == "ask":
            return False
        if self.parallel_safe is not None:
            return self.parallel_safe
        return isinstance(self.run, FunctionRunner) and self.run.shape.is_async

    @cached_property
    def is_told_its_call(self) -> bool:
        """Whether its function, its policy or a person who approves it sees the call's context."""
        run = self.run
        takes_context = not isinstance(run, FunctionRunner) or run.shape.context is not None
        return takes_context or self.needs_approval or bool(self.policy.arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.source or self.origin})"

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return ToolSpec(self.name, self.description, hide_config(self.parameters, self.config))

    @cached_property
    def schema(self) -> SchemaValidator:
        """The compiled whole schema."""
        return _validator(json.dumps(self.parameters))

    @cached_property
    def shown_schema(self) -> SchemaValidator:
        """The compiled schema that the model sees."""
        return _validator(json.dumps(self.spec.parameters))

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """The texts in `config`, at any depth, which errors must not show."""
        return tuple(_texts(self.config))

    @classmethod
    def from_function(
        cls,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        inline: bool = False,
        capability: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> "FunctionTool[P, R]":
        """Make a tool of a function: its types become the schema, its docstring the description.

        Args:
            function: The function. One that isn't async runs on a worker thread, which is
                abandoned if it takes too long, as it can't be ended.
            name: Its name for the model; by default the function's name.
            description: Its description; by default the docstring before `Args:`.
            inline: Whether a function that isn't async runs on the event loop's own thread. That is
                faster, and for functions that never wait.
            capability: The capability that the caller needs.
            **options: See `ToolOptions`.

        Raises:
            TypeError: A parameter's type can't be shown to a model; it is named.
            ValueError: The name or `config` can't be used.
        """
        shape = read_function(function)
        if name is not None:
            shape = evolve(shape, name=name)
        return FunctionTool(
            name=shape.name,
            description=shape.description if description is None else description,
            parameters=shape.parameters,
            run=FunctionRunner(function, shape, inline=inline),
            capability=capability,
            source=f"the function {function.__module__}.{shape.qualified_name}",
            function=function,
            **options,
        )

    @classmethod
    async def from_item(
        cls,
        rye: "ItemExecutor",
        ref: str | ItemRef,
        *,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> "ToolDef":
        """Make a tool of a signed item, with the item's schema and description.

        Its whole chain is verified now, and again at each call. A caller needs the capability to
        execute it.

        Args:
            rye: The open Rye that executes it.
            ref: `tool:ID`.
            name: Its name for the model; by default its id with `__` for each slash.
            description: Its description; by default that of the item.
            **options: See `ToolOptions`. By default, `timeout_s` is that of its chain, and
                `parallel_safe` and `read_only` what the item declares.

        Raises:
            RyeError: It isn't a tool, or its chain isn't valid.
            ValueError: The name or `config` can't be used.
        """
        from ryecore.tools.items import ItemRunner, read_item  # noqa: PLC0415 - brings the chain

        shape = await read_item(rye, ref)
        name = name or shape.name
        if options.get("timeout_s") is None:
            options["timeout_s"] = ItemRunner.timeout_s
        if options.get("parallel_safe") is None:
            options["parallel_safe"] = shape.parallel_safe
        options.setdefault("read_only", shape.read_only)
        return ToolDef(
            name=name,
            description=shape.description if description is None else description,
            parameters=shape.parameters,
            run=ItemRunner(rye, shape.ref, name),
            capability=shape.capability,
            origin="item" if shape.server is None else "mcp",
            source=str(shape.ref),
            **options,
        )

    @classmethod
    async def from_mcp(
        cls,
        rye: "ItemExecutor",
        server: str | ItemRef,
        *,
        parallel_safe: bool | None = None,
        timeout_s: float | None = None,
        needs_approval: bool = False,
        needs: Iterable[str] = (),
    ) -> "tuple[ToolDef, ...]":
        """Make tools of all pinned tools of an MCP server, without asking the server.

        Args:
            rye: The open Rye that executes them.
            server: The server's item, such as `tool:mcp/context7`.
            parallel_safe: Whether they may run in parallel with others of the same turn; by
                default those whose pinned item says so, as `rye mcp pin` writes for tools that
                the server calls read-only.
            timeout_s: The time limit of each in seconds; by default that of its chain.
            needs_approval: Whether a person is asked before each run.
            needs: The host's capabilities that they need.

        Raises:
            RyeError: It has no pinned tools, or none of them can be verified. One that can't be
                is left out, with a `RyeWarning` that names it.

        Source: decision 30.
        """
        from ryecore.tools.items import pinned_items  # noqa: PLC0415 - brings the chain

        refs = await pinned_items(rye, server)
        return tuple(
            [
                await cls.from_item(
                    rye,
                    ref,
                    parallel_safe=parallel_safe,
                    timeout_s=timeout_s,
                    needs_approval=needs_approval,
                    needs=needs,
                )
                for ref in refs
            ]
        )


@frozen(eq=False, kw_only=True, repr=False)
class FunctionTool(ToolDef, Generic[P, R]):
    """A tool made of a Python function, which can still be called as one.

    Attributes:
        function: The function.
    """

    function: Callable[P, R] = field()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without checks or events."""
        return self.function(*args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The function, for readers of signatures."""
        return self.function

    @property
    def is_unbound(self) -> bool:
        """Whether it is a method that isn't bound to an object."""
        return isinstance(self.run, FunctionRunner) and self.run.shape.is_unbound

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: "FunctionTool[Concatenate[T, Q], R]", instance: T, owner: type | None = None
    ) -> "FunctionTool[Q, R]": ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the tool bound to an object, if the function is a method."""
        if instance is None or not isinstance(self.run, FunctionRunner):
            return self
        run = self.run.bound_to(instance)
        return evolve(self, run=run, function=run.function)


def same_tool(one: ToolDef, other: ToolDef) -> bool:
    """Return whether two tools are one: the same object, or of one function with equal options."""
    if one is other:
        return True
    if not (isinstance(one, FunctionTool) and isinstance(other, FunctionTool)):
        return False
    return all(
        getattr(one, declared.name) == getattr(other, declared.name)
        for declared in fields(FunctionTool)
        if declared.name != "run"
    )


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    inline: bool = False,
    capability: str | None = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function, which can still be called as one.

    Types become the schema; the docstring gives the descriptions of the tool and, below `Args:`, of
    the parameters. A parameter of the type `ToolContext`, or `ToolContext[Deps]` where the host
    gives dependencies, gets the context; models don't see it.

    Args:
        function: The function, or a method.
        **options: See `ToolDef.from_function`.

    Returns:
        The tool; with only options, a decorator.

    Raises:
        TypeError: A parameter's type can't be shown to a model; it is named.
        ValueError: The name or `config` can't be used.
    """
    if function is not None:
        return ToolDef.from_function(function)

    def decorate(function: Callable[P, R]) -> FunctionTool[P, R]:
        return ToolDef.from_function(function, **options)

    return decorate
