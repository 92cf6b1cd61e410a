"""Python functions as tools: their types as a schema, and how they are called."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, get_origin, get_type_hints

import anyio
from anyio.lowlevel import EventLoopToken, current_token
from attrs import evolve

from ryecore.errors import ToolExecutionError
from ryecore.frozen import frozen
from ryecore.tools.annotations import Convert, form_of, json_default, read_docstring
from ryecore.tools.context import ToolContext
from ryecore.tools.failures import invalid_arguments, shown

__all__ = ["FunctionRunner", "FunctionShape", "read_function"]

_MAX_WORKERS: Final = 40


@frozen
class FunctionShape:
    """The name, types and docstring of a function.

    `converters` make the declared types of the arguments whose JSON is another. `context` is the
    parameter that gets the `ToolContext`. `is_unbound` is set for a method without its object.
    """

    name: str
    qualified_name: str
    description: str
    parameters: Mapping[str, Any]
    converters: Mapping[str, Convert]
    context: str | None
    is_async: bool
    is_unbound: bool = False


def read_function(function: Callable[..., Any]) -> FunctionShape:
    """Read a function's types and docstring; a TypeError names what has no form for models."""
    name = _name(function)
    bare = function.func if isinstance(function, partial) else function
    if not callable(function) or isinstance(bare, type):
        raise TypeError(f"{name} isn't a function. Pass a function, or an object with __call__.")
    called = bare if inspect.isroutine(bare) else type(bare).__call__
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(f"{name} is a generator. Return the result, such as a list, instead.")
    said = read_docstring(inspect.getdoc(bare))
    try:
        hints = get_type_hints(inspect.unwrap(called), include_extras=True)
    except Exception as error:  # whatever an annotation's text evaluates to
        raise TypeError(
            f"{name}: its annotations can't be read: {error}. Define the types that they name in "
            "its module, not inside a function."
        ) from None
    properties: dict[str, Any] = {}
    required: list[str] = []
    converters: dict[str, Convert] = {}
    context: str | None = None
    listed = [*inspect.signature(function).parameters.values()]
    is_unbound = bool(listed) and listed[0].name == "self" and "self" not in hints
    for parameter in listed[is_unbound:]:
        where = f"{name}({parameter.name})"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{where}: a model can only name arguments; write no *, ** or / here.")
        if parameter.name not in hints:
            raise TypeError(
                f"{where}: it has no type. Annotate it, such as `{parameter.name}: str`."
            )
        hint = hints[parameter.name]
        if hint is ToolContext or get_origin(hint) is ToolContext:
            context = parameter.name
            continue
        form = form_of(hint, where)
        schema = dict(form.schema)
        if parameter.name in said.arguments:
            schema.setdefault("description", said.arguments[parameter.name])
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            schema |= json_default(parameter.default)
        properties[parameter.name] = schema
        if form.convert is not None:
            converters[parameter.name] = form.convert
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    parameters["additionalProperties"] = False
    is_async = inspect.iscoroutinefunction(called)
    return FunctionShape(
        name,
        getattr(bare, "__qualname__", name),
        said.description,
        parameters,
        converters,
        context,
        is_async,
        is_unbound,
    )


def _name(function: Any) -> str:
    if isinstance(function, partial):
        return _name(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


class FunctionRunner:
    """Calls a function with arguments that fit its schema.

    With `inline`, one that isn't async runs on the event loop's thread.
    """

    __slots__ = ("_context", "_converters", "_is_inline", "_loop", "_workers", "function", "shape")

    def __init__(
        self, function: Callable[..., Any], shape: FunctionShape, *, inline: bool = False
    ) -> None:
        self.function = function
        self.shape = shape
        self._converters = tuple(shape.converters.items())
        self._context = shape.context
        self._is_inline = inline
        self._loop: EventLoopToken | None = None
        self._workers: anyio.CapacityLimiter | None = None

    @property
    def never_waits(self) -> bool:
        """Whether a call ends before any other task on the event loop runs."""
        return self._is_inline and not self.shape.is_async

    async def __call__(self, arguments: Mapping[str, Any], ctx: ToolContext) -> object:
        """Call the function, and wait for it."""
        given = dict(arguments)
        if self._converters:
            self._convert(given)
        if self._context is not None:
            given[self._context] = ctx
        if self.shape.is_async:
            return await self.function(**given)
        if self._is_inline:
            return self.function(**given)
        return await anyio.to_thread.run_sync(
            self._on_worker, given, abandon_on_cancel=True, limiter=self._limiter()
        )

    def bound_to(self, instance: object) -> "FunctionRunner":
        """Return the runner of the method of an object."""
        function = self.function.__get__(instance)
        return FunctionRunner(
            function, evolve(self.shape, is_unbound=False), inline=self._is_inline
        )

    def _convert(self, given: dict[str, Any]) -> None:
        problem = None
        for name, convert in self._converters:
            if name in given:
                try:
                    given[name] = convert(given[name])
                except Exception as error:  # a type's own check may raise anything
                    problem = f"{name}: {shown(str(error)) or type(error).__name__}"
                    break
        if problem is not None:
            raise invalid_arguments(self.shape.name, problem)

    def _on_worker(self, given: Mapping[str, Any]) -> object:
        try:
            return self.function(**given)
        except SystemExit:
            # On the main thread it may be a signal's; on this one it is the tool's own.
            raise ToolExecutionError(
                f"The tool {self.shape.name} tried to end the whole process.",
                tool_name=self.shape.name,
            ) from None
        except StopIteration as error:
            # No coroutine can let this one pass.
            raise RuntimeError(f"StopIteration: {error}") from None

    def _limiter(self) -> anyio.CapacityLimiter:
        """Return the limiter of this tool's threads, so that a hanging tool starves no other.

        They belong to an event loop, of which a process may see several.
        """
        loop = current_token()
        if self._workers is None or self._loop != loop:
            self._loop, self._workers = loop, anyio.CapacityLimiter(_MAX_WORKERS)
        return self._workers
