"""Typed answers: an invoice as a value of a class, corrected by the class and by a check of ours.

A scripted model answers: first with a date that is none, then with lines that don't add up.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import anyio

from ryecore import Agent, AgentRunnerDeps, AgentSession
from ryecore.agent import Retry
from ryecore.testing import ScriptedProvider

LETTER = "Invoice A-17 of 1 February 2026: 2 lamps at 49.00, and shipping at 1.50. 28 days net."
LINES = '[{"what": "lamps", "price": "49.00"}, {"what": "shipping", "price": "1.50"}]'
WRONG = f'{{"number": "A-17", "due": "2026-03-01", "total": "99.50", "lines": {LINES}}}'
ANSWERS = [WRONG.replace("2026-03-01", "28 days net"), WRONG, WRONG.replace("49.00", "98.00")]


@dataclass
class Line:
    what: str
    price: Decimal


@dataclass
class Invoice:
    """What is to be paid, and by when.

    Attributes:
        lines: One for each article, times its pieces.
    """

    number: str
    due: date
    total: Decimal
    lines: list[Line]


def adds_up(invoice: Invoice) -> None:
    if sum(line.price for line in invoice.lines) != invoice.total:
        raise Retry(f"The lines don't add up to {invoice.total}.")


async def main() -> None:
    model = ScriptedProvider(ANSWERS)
    deps = AgentRunnerDeps(resolve_provider=lambda _: model, key_for=lambda _: "")
    clerk = Agent(name="clerk", provider="p", model="m", output_type=Invoice, output_check=adds_up)
    session = AgentSession(clerk, deps)
    invoice = (await session.send(LETTER)).output
    for message in session.messages:
        print(f"{message.role:>9}  {message.text}")
    print(f"\nPay {invoice.total} euros by {invoice.due:%d %B %Y}.")


anyio.run(main)
