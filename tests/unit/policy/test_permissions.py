import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.policy import allows, capability_of
from ryecore.policy.permissions import Action, attenuate, holds_any

SEGMENT = st.text("abAB01_-", min_size=1, max_size=5).filter(lambda word: word[0] != "-")
ITEM_ID = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)
PATTERN = st.lists(
    st.sampled_from(["rye", "execute", "sign", "tool", "a", ".", "*", "?", "[", "]", "[!x]", "-"]),
    max_size=9,
).map("".join)


def test_a_capability_names_the_action_the_kind_and_the_item() -> None:
    assert capability_of("execute", "tool", "acme/csv/sum") == "rye.execute.tool.acme.csv.sum"
    assert capability_of("fetch", "knowledge", "x") == "rye.fetch.knowledge.x"
    assert capability_of("sign", "directive", "a-b_c") == "rye.sign.directive.a-b_c"


@given(ITEM_ID, ITEM_ID)
def test_two_items_never_share_a_capability(one: str, other: str) -> None:
    same = capability_of("execute", "tool", one) == capability_of("execute", "tool", other)
    assert same == (one == other)


@given(ITEM_ID)
def test_a_capability_grants_itself_and_no_other_action(item_id: str) -> None:
    needed = capability_of("execute", "tool", item_id)
    assert allows([needed], needed)
    assert not allows([], needed)
    assert not allows([capability_of("fetch", "tool", item_id)], needed)
    assert not allows([capability_of("execute", "directive", item_id)], needed)
    assert not allows([needed + ".more"], needed)
    assert not allows([needed[:-1]], needed)


@pytest.mark.parametrize(
    ("granted", "needed", "allowed"),
    [
        ("*", "rye.execute.tool.a", True),
        ("rye.*", "rye.execute.tool.a", True),
        ("rye.execute.*", "rye.execute.tool.a.b", True),
        ("rye.execute.*", "rye.fetch.tool.a", False),
        ("rye.execute.tool.acme.*", "rye.execute.tool.acme.csv.sum", True),
        ("rye.execute.tool.acme.*", "rye.execute.tool.acme", False),
        ("rye.execute.tool.acme.*", "rye.execute.tool.acmes.x", False),
        ("rye.execute.*.acme.x", "rye.execute.directive.acme.x", True),
        ("rye.execute.tool.*.sum", "rye.execute.tool.a.b.sum", True),
        ("rye.execute.tool.Acme", "rye.execute.tool.acme", False),
        ("execute.tool.a", "rye.execute.tool.a", False),
        ("", "rye.execute.tool.a", False),
    ],
)
def test_the_wildcard(granted: str, needed: str, allowed: bool) -> None:
    assert allows([granted], needed) is allowed
    assert allows(["rye.fetch.tool.other", granted], needed) is allowed


@given(PATTERN, ITEM_ID)
def test_no_wildcard_grants_signing(pattern: str, item_id: str) -> None:
    needed = capability_of("sign", "tool", item_id)
    assert allows([pattern], needed) == (pattern == needed)


@pytest.mark.parametrize("pattern", ["*", "rye.*", "rye.sign.*", "rye.sign.tool.*", "rye.s*"])
def test_signing_is_granted_by_its_name_alone(pattern: str) -> None:
    assert not allows([pattern], "rye.sign.tool.a")
    assert allows([pattern, "rye.sign.tool.a"], "rye.sign.tool.a")


@pytest.mark.parametrize(
    ("wanted", "parent", "kept"),
    [
        (["rye.execute.tool.a"], None, ["rye.execute.tool.a"]),
        (["rye.execute.tool.a"], [], []),
        (["rye.execute.tool.a"], ["rye.execute.*"], ["rye.execute.tool.a"]),
        (["rye.execute.tool.a.*"], ["rye.execute.*"], ["rye.execute.tool.a.*"]),
        (
            ["rye.*"],
            ["rye.execute.tool.a", "rye.fetch.*", "rye.sign.tool.a"],
            ["rye.execute.tool.a", "rye.fetch.*"],
        ),
        (["rye.sign.tool.a"], ["rye.*"], []),
        (["rye.sign.tool.a"], ["rye.sign.tool.a"], ["rye.sign.tool.a"]),
        (["rye.execute.a*"], ["rye.execute.*b"], []),
        (["rye.fetch.*", "rye.execute.tool.b"], ["rye.execute.tool.*"], ["rye.execute.tool.b"]),
    ],
)
def test_a_child_may_do_what_it_wants_within_what_its_parent_may(
    wanted: list[str], parent: list[str] | None, kept: list[str]
) -> None:
    assert list(attenuate(wanted, parent)) == kept


@given(st.lists(PATTERN, max_size=4), st.lists(PATTERN, max_size=4), ITEM_ID)
def test_attenuation_never_grants_what_one_of_them_lacks(
    wanted: list[str], parent: list[str], item_id: str
) -> None:
    needed = capability_of("execute", "tool", item_id)
    if allows(attenuate(wanted, parent), needed):
        assert allows(wanted, needed)
        assert allows(parent, needed)


@given(st.sets(PATTERN | st.just("rye.execute.tool.a")), st.sampled_from(["execute", "sign"]))
def test_a_primary_is_held_wherever_anything_of_it_is_granted(
    granted: set[str], action: Action
) -> None:
    needed = (capability_of(action, "tool", "a"), capability_of(action, "tool", "a/a"))
    if any(allows(granted, one) for one in needed):
        assert holds_any(granted, action)


@pytest.mark.parametrize(
    ("granted", "action", "held"),
    [
        ((), "execute", False),
        (("rye.execute.tool.a",), "execute", True),
        (("rye.exec*",), "execute", True),
        (("rye.fetch.*",), "execute", False),
        (("rye.executed.*",), "execute", False),
        (("*",), "fetch", True),
        (("*", "rye.sign.*"), "sign", False),
        (("rye.sign.tool.a",), "sign", True),
    ],
)
def test_whether_anything_of_a_primary_is_held(
    granted: tuple[str, ...], action: Action, held: bool
) -> None:
    assert holds_any(granted, action) is held
