import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ryecore.errors import InvalidItemId, ItemError
from ryecore.items.refs import KIND_FOLDERS, ItemRef, check_item_id

WORD = st.text("abcXYZ019_-", min_size=1, max_size=12)
SEGMENT = WORD.filter(lambda word: not word.startswith("-"))
ITEM_ID = st.lists(SEGMENT, min_size=1, max_size=6).map("/".join)
ALLOWED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-/")


@given(ITEM_ID, st.sampled_from(sorted(KIND_FOLDERS)))
def test_a_canonical_ref_reads_back_as_it_is_written(item_id: str, kind: str) -> None:
    ref = ItemRef.parse(f"{kind}:{item_id}")
    assert (ref.kind, ref.id) == (kind, item_id)
    assert str(ref) == f"{kind}:{item_id}"
    assert ItemRef.parse(str(ref)) == ref


@given(ITEM_ID)
def test_a_bare_id_takes_the_default_kind(item_id: str) -> None:
    assert ItemRef.parse(item_id, "tool") == ItemRef("tool", item_id)


@given(st.text(max_size=40))
@example("a\n")
@example("a/b\n")
@example("a/./b")
def test_an_accepted_id_can_neither_leave_its_folder_nor_hide(text: str) -> None:
    try:
        check_item_id(text)
    except InvalidItemId:
        return
    assert set(text) <= ALLOWED
    assert all(part and not part.startswith("-") for part in text.split("/"))


@given(ITEM_ID, ITEM_ID)
def test_slash_to_dot_is_one_to_one(one: str, other: str) -> None:
    assert (one.replace("/", ".") == other.replace("/", ".")) == (one == other)


@pytest.mark.parametrize(
    "item_id",
    [
        "",
        "/",
        "..",
        ".",
        "../x",
        "a/../b",
        "a/..",
        "a/./b",
        "a.b",
        "a/b.py",
        ".hidden",
        "/etc/passwd",
        "//a",
        "a//b",
        "a/",
        "-a",
        "a/-b",
        "a\\b",
        "..\\b",
        "C:/x",
        "a:b",
        "a b",
        " a",
        "a\x00b",
        "a\n",
        "\na",
        "a\r",
        "a\tb",
        "~/x",
        "$HOME",
        "${HOME}",
        "{project_path}",
        "a*",
        "a?",
        "[a]",
        "%2e%2e/x",
        "аcme",  # a Cyrillic letter
        "ａcme",  # a full-width letter
        "a／b",  # a full-width slash
        "a∕b",  # a division slash
        "a․b",  # a one dot leader
        "١",  # a digit, but not of ASCII
        "café",
        "a\u200bb",
        "\ud800",
        "a" * 513,
        "a/" * 300 + "b",
    ],
)
def test_an_id_of_another_form_is_refused_with_what_an_id_is(item_id: str) -> None:
    with pytest.raises(InvalidItemId, match="is not an item id") as refused:
        ItemRef.parse(f"tool:{item_id}")
    assert refused.value.facts["given"] == item_id
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, ItemError)
    assert "acme/csv/summarise" in refused.value.next_step
    assert len(str(refused.value)) < 500


def test_an_id_may_be_512_characters_long() -> None:
    assert check_item_id("a" * 512) == "a" * 512


@pytest.mark.parametrize("text", ["thing:x", ":x", "Tool:x", "tools:x", " tool:x", "tool :x"])
def test_an_unknown_kind_is_refused_with_the_kinds(text: str) -> None:
    with pytest.raises(InvalidItemId, match="not a kind of item") as refused:
        ItemRef.parse(text)
    assert all(kind in refused.value.next_step for kind in KIND_FOLDERS)


@pytest.mark.parametrize(
    ("text", "example"), [("acme/x", "tool:acme/x"), ("../x", "tool:acme/name")]
)
def test_a_bare_id_without_a_default_kind_is_refused_with_the_kinds(
    text: str, example: str
) -> None:
    with pytest.raises(InvalidItemId, match="doesn't say what kind") as refused:
        ItemRef.parse(text)
    assert f"like {example}." in refused.value.next_step
    assert all(kind in refused.value.next_step for kind in KIND_FOLDERS)


def test_whoever_names_a_graph_by_that_kind_is_told_that_it_is_a_tool() -> None:
    with pytest.raises(InvalidItemId, match="'graph' is not a kind") as refused:
        ItemRef.parse("graph:acme/x")
    assert "write tool:acme/x" in refused.value.next_step


@pytest.mark.parametrize("kind", sorted(KIND_FOLDERS))
def test_each_kind_has_its_folder(kind: str) -> None:
    assert ItemRef(kind, "x").folder == {"tool": "tools", "directive": "directives"}.get(kind, kind)
