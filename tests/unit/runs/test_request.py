"""The request for a run, made from the arguments of its caller."""

import pytest

from ryecore import Limits
from ryecore.errors import InputError
from ryecore.runs.request import parse_limits


@pytest.mark.parametrize("given", [None, {}, {"turns": 3}, Limits(turns=3)])
def test_limits_are_a_mapping_or_limits(given):
    assert parse_limits(given) == (Limits(turns=3) if given else Limits())


@pytest.mark.parametrize("given", [{"laps": 1}, {"turns": -1}, {1: 2}, "turns=3", 3])
def test_what_limits_nothing_is_refused_with_an_example(given):
    with pytest.raises(InputError, match=r"[Ll]imits") as refused:
        parse_limits(given)
    assert "turns" in refused.value.next_step
