"""Typed answers: a schema for the model, a value for the caller, and the host's check."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import attrs
import pytest
from pydantic import BaseModel, Field, field_validator

from ryecore.agent import Agent, Retry
from ryecore.errors import AgentTurnError, ConfigError
from ryecore.testing import say
from tests.unit.agent.studio import Studio

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class Card(BaseModel):
    kind: Literal["card"]
    number: str


class Cash(BaseModel):
    kind: Literal["cash"]


@dataclass
class Line:
    what: str
    price: float


@attrs.frozen
class Invoice:
    """An invoice.

    Attributes:
        number: As printed at its top.
    """

    number: str
    due: date
    lines: list[Line]

    def __attrs_post_init__(self) -> None:
        if not self.lines:
            raise ValueError("an invoice has at least one line")


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Point(TypedDict):
    x: int
    y: int


INVOICE = {"number": "A-1", "due": "2026-03-01", "lines": [{"what": "tea", "price": 2}]}


def fed(studio: Studio) -> list[str]:
    """What the model was told after its first answer."""
    return [
        message.text for message in studio.model.requests[-1].messages[1:] if message.role == "user"
    ]


async def test_the_output_is_a_value_of_the_type():
    studio = Studio(json.dumps(INVOICE))
    reply = await studio.session(output_type=Invoice).send("Read it.")
    assert reply.output == Invoice("A-1", date(2026, 3, 1), [Line("tea", 2.0)])
    sent = studio.model.requests[0].response_format
    assert sent is not None
    assert sent.schema["description"] == "An invoice."
    assert sent.schema["properties"]["number"]["description"] == "As printed at its top."
    assert sent.schema["properties"]["due"] == {"type": "string", "format": "date"}


@pytest.mark.parametrize(
    ("kind", "said", "output"),
    [
        (list[Line], [{"what": "tea", "price": 2}], [Line("tea", 2.0)]),
        (Mood, "bad", Mood.BAD),
        (Point | Mood, "good", Mood.GOOD),
        (Line | None, None, None),
        (int, 3, 3),
        (Literal["yes", "no"], "no", "no"),
        (date, "2026-03-01", date(2026, 3, 1)),
    ],
)
async def test_a_type_that_is_no_object_is_wrapped_for_the_vendor(
    kind: Any, said: object, output: object
):
    studio = Studio(json.dumps({"result": said}))
    assert (await studio.session(output_type=kind).send("Go.")).output == output
    sent = studio.model.requests[0].response_format
    assert sent is not None
    assert (sent.schema["type"], sent.schema["required"]) == ("object", ["result"])


async def test_a_typed_dict_is_an_object_already():
    studio = Studio('{"x": 1, "y": 2}')
    reply = await studio.session(output_type=Point).send("Go.")
    assert reply.output == {"x": 1, "y": 2}


async def test_a_str_is_the_text_itself():
    studio = Studio("as it is")
    assert (await studio.session(output_type=str).send("Go.")).output == "as it is"
    assert studio.model.requests[0].response_format is None


async def test_what_does_not_fit_the_type_is_told_to_the_model():
    no_lines = json.dumps({**INVOICE, "lines": []})
    studio = Studio('{"number": 5}', no_lines, json.dumps(INVOICE))
    reply = await studio.session(output_type=Invoice).send("Read it.")
    assert (reply.output.number, reply.turns) == ("A-1", 3)
    schema, own = fed(studio)
    assert "number" in schema
    assert "an invoice has at least one line" in own


async def test_what_never_fits_the_type_is_a_validation_failure():
    studio = Studio(*['{"number": 5}'] * 10)
    with pytest.raises(AgentTurnError) as caught:
        await studio.session(output_type=Invoice).send("Read it.")
    assert (caught.value.code, len(studio.model.requests)) == ("validation", 4)


async def test_a_check_has_an_answer_corrected():
    def positive(line: Line) -> None:
        if line.price <= 0:
            raise Retry("A price is above zero.")

    studio = Studio('{"what": "tea", "price": 0}', '{"what": "tea", "price": 2}')
    reply = await studio.session(output_type=Line, output_check=positive).send("Go.")
    assert reply.output == Line("tea", 2)
    assert "A price is above zero." in fed(studio)[0]


async def test_a_check_is_within_the_correction_budget():
    def never(line: Line) -> None:
        raise Retry("Not this one.")

    studio = Studio(*['{"what": "tea", "price": 0}'] * 10)
    with pytest.raises(AgentTurnError, match=r"Not this one\.") as caught:
        await studio.session(output_type=Line, output_check=never).send("Go.")
    assert (caught.value.code, len(studio.model.requests)) == ("validation", 4)


async def test_a_check_may_be_awaited_and_replace_the_output():
    async def doubled(line: Line) -> Line:
        return Line(line.what, line.price * 2)

    studio = Studio('{"what": "tea", "price": 2}')
    reply = await studio.session(output_type=Line, output_check=doubled).send("Go.")
    assert reply.output == Line("tea", 4)
    assert reply.text == '{"what": "tea", "price": 2}'


async def test_text_and_json_can_be_checked_too():
    def brief(text: object) -> None:
        if len(str(text)) > 5:
            raise Retry("At most five characters.")

    studio = Studio("far too long", "short")
    assert (await studio.session(output_check=brief).send("Go.")).output == "short"
    studio = Studio("[1, 2, 3]", "[1]")
    session = studio.session(output_check=brief, output_schema={"type": "array"})
    assert (await session.send("Go.")).output == [1]


async def test_an_error_of_a_check_itself_ends_the_reply():
    def broken(line: Line) -> None:
        raise KeyError("rates")

    studio = Studio('{"what": "tea", "price": 2}')
    with pytest.raises(AgentTurnError, match="KeyError") as caught:
        await studio.session(output_type=Line, output_check=broken).send("Go.")
    assert caught.value.code == "internal"


async def test_a_node_gives_the_typed_output_and_its_schema_replaces_it():
    studio = Studio(json.dumps(INVOICE), '{"n": 1}')
    agent = studio.agent(output_type=Invoice)
    done = await studio.run(agent=agent)
    assert done.output == Invoice("A-1", date(2026, 3, 1), [Line("tea", 2.0)])
    assert done.to_dict()["output"] == INVOICE
    done = await studio.run(agent=agent, node={"output_schema": {"required": ["n"]}})
    assert done.output == {"n": 1}


class Order(BaseModel):
    """An order.

    It may be large.
    """

    id: UUID
    at: datetime
    total: Decimal = Field(gt=0)
    pay: Annotated[Card | Cash, Field(discriminator="kind")]
    card: Card | None = None


ORDER = {
    "id": "5a1e2cb0-5c04-4b9b-8d2c-7d6e5e1d2a01",
    "at": "2026-03-01T10:00:00Z",
    "total": "1.50",
    "pay": {"kind": "card", "number": "7"},
}


async def test_a_pydantic_model_is_made_by_its_own_validation():
    studio = Studio(json.dumps({**ORDER, "total": 0}), json.dumps(ORDER))
    reply = await studio.session(output_type=Order).send("Read it.")
    assert reply.output == Order.model_validate(ORDER)
    assert isinstance(reply.output.pay, Card)
    assert "total" in fed(studio)[0]
    sent = studio.model.requests[0].response_format
    assert sent is not None
    assert "$ref" not in json.dumps(sent.schema)
    assert sent.schema["additionalProperties"] is False
    assert sent.schema["description"].startswith("An order.")


async def test_a_pydantic_model_may_stand_within_other_types():
    @dataclass
    class Batch:
        orders: list[Order]

    for kind in (Batch, list[Order]):
        answer = {"orders" if kind is Batch else "result": [ORDER]}
        output = (await Studio(json.dumps(answer)).session(output_type=kind).send("Go.")).output
        orders = output.orders if isinstance(output, Batch) else output
        assert orders == [Order.model_validate(ORDER)]


async def test_what_a_pydantic_validator_refuses_is_told_to_the_model():
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def check(cls, value: int) -> int:
            if value % 2:
                raise ValueError("it is odd")
            return value

    studio = Studio('{"n": 1}', '{"n": 2}')
    assert (await studio.session(output_type=Even).send("Go.")).output == Even(n=2)
    assert "n: Value error, it is odd" in fed(studio)[0]


async def test_an_answer_that_was_cut_is_no_output():
    studio = Studio(say('{"what"', stop_reason="length"))
    with pytest.raises(AgentTurnError, match="cut"):
        await studio.session(output_type=Line).send("Go.")


@pytest.mark.parametrize(
    "fields",
    [
        {"output_type": 5},
        {"output_type": bytes},
        {"output_type": Line, "output_schema": {"type": "object"}},
        {"output_check": 5},
    ],
)
async def test_an_agent_whose_output_is_misdeclared_is_refused_at_once(fields: dict[str, Any]):
    with pytest.raises(ConfigError) as caught:
        Agent(name="a", provider="p", model="m", **fields)
    assert caught.value.next_step


async def test_a_wrong_date_in_an_optional_field_is_told_as_one():
    @dataclass
    class Bill:
        due: date | None
        paid_by: Card | Cash | None = None

    studio = Studio(
        '{"due": "in March"}',
        '{"due": null, "paid_by": {"kind": "card", "number": 5}}',
        '{"due": "2026-03-01"}',
    )
    reply = await studio.session(output_type=Bill).send("Read it.")
    first, second = fed(studio)
    assert 'due: "in March" is not a "date", such as 2026-01-31.' in first
    assert 'paid_by.number: 5 is not of type "string".' in second
    assert reply.output == Bill(date(2026, 3, 1))


async def test_a_fence_in_capitals_is_one():
    studio = Studio('```JSON\n{"x": 1, "y": 2}\n```')
    assert (await studio.session(output_type=Point).send("Read it.")).output == {"x": 1, "y": 2}
