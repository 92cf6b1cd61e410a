"""Functions as tools."""

import dataclasses
import functools
import gc
import inspect
import threading
from typing import Annotated, Any

import anyio
import pytest

from ryecore.errors import ToolArgsInvalidError, ToolExecutionError
from ryecore.tools import FunctionTool, ToolContext, ToolDef, ToolRegistry, tool
from tests.unit.tools.calls import called, refused

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class Place:
    name: str
    depth_m: float = 1.0

    def __post_init__(self) -> None:
        if self.depth_m < 0:
            raise ValueError("no depth is negative, at /home/ada/x.py")


@tool
def add(a: int, b: Annotated[int, "The second."] = 2) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: Not this.
    """
    return a + b


@tool(name="look_up", description="Look.", parallel_safe=True, timeout_s=2, untrusted=False)
async def look(place: Place, ctx: ToolContext, *, deep: bool = False) -> dict[str, Any]:
    """Not this."""
    assert isinstance(place, Place)
    return {"place": place, "granted": ctx.grant is None, "deep": deep}


class Shop:
    def __init__(self, price: int) -> None:
        self._price = price

    @tool
    def price(self, item: str) -> int:
        """What an item costs."""
        return self._price * len(item)

    @tool(inline=True)
    def thread(self) -> int:
        return threading.get_ident()

    async def stock(self, item: str) -> int:
        """How many there are."""
        return self.price(item) + 1


def test_types_and_docstring_become_what_the_model_sees() -> None:
    assert add.spec.name == "add"
    assert add.spec.description == "Add two numbers."
    assert add.spec.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {"type": "integer", "description": "The second.", "default": 2},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert (look.name, look.spec.description) == ("look_up", "Look.")
    assert list(look.spec.parameters["properties"]) == ["place", "deep"]
    assert (look.parallel_safe, look.timeout_s, look.untrusted) == (True, 2, False)


async def test_a_tool_is_its_function_still() -> None:
    assert add(1, 2) == 3
    assert add(a=1) == 3
    assert (await look(Place("x"), ToolContext()))["deep"] is False
    assert inspect.signature(add) == inspect.signature(add.function)
    assert isinstance(add, FunctionTool)
    assert repr(add) == f"FunctionTool('add', the function {__name__}.add)"


async def test_arguments_become_what_was_declared() -> None:
    done = await called(look, {"place": {"name": "x", "depth_m": 2}})

    assert done.value == {"place": Place("x", 2.0), "granted": True, "deep": False}


async def test_a_value_that_its_type_refuses_can_be_corrected() -> None:
    error = await refused(ToolArgsInvalidError, look, {"place": {"name": "x", "depth_m": -1}})

    assert "the tool look_up: place: no depth is negative, at …/x.py" in str(error)
    assert "ada" not in str(error)


async def test_methods_are_tools_of_their_object() -> None:
    cheap, dear = Shop(1), Shop(100)

    assert dear.price("ab") == 200
    assert (await called(cheap.price, {"item": "abc"})).value == 3
    assert (await called(dear.price, {"item": "abc"})).value == 300
    assert (await called(dear.stock, {"item": "a"})).value == 101
    assert list(dear.price.spec.parameters["properties"]) == ["item"]
    with pytest.raises(TypeError, match=r"price is a method of a class"):
        ToolRegistry([Shop.price])


async def test_a_function_that_is_not_async_runs_on_a_thread_of_its_own_unless_inline() -> None:
    here = threading.get_ident()

    def where() -> int:
        return threading.get_ident()

    assert (await called(where)).value != here
    assert (await called(tool(inline=True)(where))).value == here
    assert (await called(Shop(1).thread)).value == here


def test_one_tool_serves_one_event_loop_after_another(anyio_backend: str) -> None:
    async def twice() -> list[Any]:
        return [(await called(add, {"a": number})).value for number in range(2)]

    for _ in range(2):
        assert anyio.run(twice, backend=anyio_backend) == [2, 3]


async def test_tools_that_are_gone_leave_nothing_with_the_event_loop() -> None:
    def limiters() -> int:
        gc.collect()
        return sum(isinstance(one, anyio.CapacityLimiter) for one in gc.get_objects())

    await called(Shop(1).price, {"item": "a"})
    before = limiters()
    for _ in range(20):
        await called(Shop(1).price, {"item": "a"})
    with anyio.fail_after(10):  # a worker thread may hold what it did for a moment yet
        while limiters() > before:
            await anyio.sleep(0.01)


async def test_partials_and_callable_objects_are_functions() -> None:
    class Adder:
        """Add three."""

        async def __call__(self, a: int) -> int:
            return a + 3

    assert (await called(functools.partial(add.function, b=5), {"a": 1})).value == 6
    done = ToolDef.from_function(Adder())
    assert (done.name, done.spec.description) == ("Adder", "Add three.")
    assert (await called(done, {"a": 1})).value == 4


def untyped(a) -> None: ...  # type: ignore[no-untyped-def]
def starred(*a: int) -> None: ...
def doubly(**a: int) -> None: ...
def positional(a: int, /) -> None: ...
def odd(a: int, b: "list[object | bytes]") -> None: ...
def missing(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def yields() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (untyped, r"untyped\(a\): it has no type"),
        (starred, r"starred\(a\): a model can only name arguments"),
        (doubly, r"doubly\(a\)"),
        (positional, r"positional\(a\)"),
        (odd, r"odd\(b\): a model can't be shown the type bytes"),
        (missing, r"missing: its annotations can't be read: name 'Nowhere'"),
        (yields, "yields is a generator"),
        (Place, "Place isn't a function"),
        (3, "int isn't a function"),
        (None, "NoneType isn't a function"),
    ],
)
def test_a_function_that_no_model_can_call_is_refused_by_name(function: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        ToolDef.from_function(function)


async def test_a_worker_that_would_end_the_process_does_not() -> None:
    def leave() -> None:
        raise SystemExit(3)

    def stop() -> None:
        raise StopIteration(4)

    error = await refused(ToolExecutionError, leave)
    assert "tried to end the whole process" in str(error)
    assert "StopIteration" in str(await refused(ToolExecutionError, stop))


async def test_defaults_are_the_functions_own() -> None:
    async def pick(names: tuple[str, ...] = ("a",), place: Place = Place("x")) -> list[Any]:  # noqa: B008
        return [names, place]

    one = ToolDef.from_function(pick)

    assert (await called(one)).value == [("a",), Place("x")]
    properties = one.spec.parameters["properties"]
    assert properties["names"]["default"] == ["a"]
    assert "default" not in properties["place"]
