"""The event of a call that was refused shows its arguments as that of any other call."""

import pytest

from ryecore.agent.calls import _shown_input


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"a": 1, "b": {"c": [2]}}', {"a": 1, "b": {"c": [2]}}),
        ("{}", {}),
        ("[1]", "[1]"),
        ('{"a": NaN}', '{"a": NaN}'),  # the event is JSON, which has no NaN
        ("{broken", "{broken"),
        ("[" * 400, "[" * 400),
        ('{"a": "' + "x" * 600 + '"}', '{"a": "' + "x" * 493),
    ],
)
def test_an_object_stays_one(arguments: str, shown: object) -> None:
    assert _shown_input(arguments) == shown
