"""The order of hooks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ryecore.policy.conditions import Comparison
from ryecore.policy.hooks import Hook, HookAction, HookLayer, in_order

FAIL = (HookAction(control="fail"),)


@given(st.lists(st.sampled_from(HookLayer)))
def test_lower_layers_come_first_and_each_keeps_its_own_order(layers):
    hooks = [Hook(str(number), "error", FAIL, layer=layer) for number, layer in enumerate(layers)]
    ordered = in_order(hooks)
    assert sorted(ordered, key=lambda hook: int(hook.id)) == hooks
    for one, other in pairwise(ordered):
        assert (one.layer, int(one.id)) < (other.layer, int(other.id))


def test_a_hook_answers_its_event_where_its_condition_holds():
    hook = Hook("h", "error", FAIL, Comparison.of("code", "eq", 429))
    assert hook.answers("error", {"code": 429})
    assert not hook.answers("error", {"code": 500})
    assert not hook.answers("limit", {"code": 429})
