"""The tree of threads as text: what a person sees, in many and in few columns."""

import unicodedata
from decimal import Decimal
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.display.text import StyledText, dollars, out_of
from ryecore.policy.limits import Limits
from ryecore.state.approvals import ThreadApproval
from ryecore.state.model import Status
from ryecore.threads.rendering import render_change, render_tree
from ryecore.threads.tree_node import TreeNode
from ryecore.threads.tree_rows import rows_of

NOW = 1_700_000_000.0
USD = 10**8
LIMITS = Limits(turns=8, tokens=200_000, spend_usd="0.5")


def thread(name: str, status: Status = "running", **said: object) -> TreeNode:
    said = {"started_at": NOW - 60, "limits": LIMITS} | said
    if status not in ("running", "created"):
        said.setdefault("ended_at", NOW - 10)
    return TreeNode(f"{name}-1", f"directive:{name}", status, **said)  # type: ignore[arg-type]


TREE = thread(
    "acme/research",
    turns=6,
    tokens=100_000,
    spend_microcents=USD // 10,
    children=(
        thread("acme/find", "completed", turns=2, tokens=50_000, spend_microcents=USD // 100),
        thread(
            "acme/read",
            turns=7,
            tokens=30_000,
            spend_microcents=USD // 5,
            children=(thread("acme/sum", "error", turns=8, note="The limit of turns is met."),),
        ),
    ),
)


def drawn(*nodes: TreeNode, width: int = 80, max_rows: int = 40) -> list[str]:
    return render_tree(nodes, width=width, now=NOW, max_rows=max_rows).plain().split("\n")


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in line)


def test_a_tree_shows_each_thread_below_the_one_that_started_it() -> None:
    assert drawn(TREE) == [
        "                          turns              tokens               spend  time",
        "▸ acme/research   ━━━━━━──  6/8  ━━━━━━━─ 180k/200k  ━━━━╸─── $0.31/0.5  1:00",
        "├─ ✓ acme/find    ━━──────  2/8  ━━──────  50k/200k  ╸─────── $0.01/0.5  50 s",
        "└─ ▸ acme/read    ━━━━━━━─  7/8  ━───────  30k/200k  ━━━─────  $0.2/0.5  1:00",
        "   └─ ✗ acme/sum  ━━━━━━━━  8/8  ────────    0/200k  ────────    $0/0.5  50 s",
        "─────────────────────────────────────────────────────────────────────────────",
        "4 threads                  23             180k                $0.31      1:00",
        "▸ 2 running  ✓ 1 completed  ✗ 1 error",
        "✗ acme/sum-1  The limit of turns is met.",
    ]


def test_what_has_no_room_is_left_out_column_by_column() -> None:
    heads = [drawn(TREE, width=width)[0].split() for width in (66, 50, 40, 30)]
    assert heads[0] == ["turns", "tokens", "spend", "time"]
    assert drawn(TREE, width=55)[1].split()[2:] == ["6/8", "180k/200k", "$0.31/0.5", "1:00"]
    assert heads[2] == heads[3] == ["spend", "time"]
    assert drawn(TREE, width=16)[0] == "▸ acme/research"


def test_what_is_nearly_used_up_warns_and_what_is_used_up_is_marked() -> None:
    def style_of(used: int) -> str:
        text = render_tree((thread("x", turns=used, limits=Limits(turns=10)),), width=80, now=NOW)
        return next(style for said, style in text.lines[1] if said.strip() == str(used))

    assert [style_of(used) for used in (0, 7, 8, 9, 10, 12)] == [
        "",
        "",
        "warn",
        "warn",
        "bad",
        "bad",
    ]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(turns=0), "0/0"),  # nothing was to be used, and nothing was
        (Limits(), "     "),
        (Limits(spend_usd=Decimal("0.0005")), "/0.0005"),
        (Limits(tokens=2**53), "/9007199G"),
    ],
)
def test_limits_of_every_size_are_shown(limits: Limits, said: str) -> None:
    assert said in drawn(thread("x", limits=limits))[1]


@given(
    width=st.integers(16, 160),
    name=st.text(max_size=60),
    note=st.text(max_size=60),
    turns=st.integers(0, 10**6),
    tokens=st.integers(0, 10**12),
    spend=st.integers(0, 10**14),
    limits=st.one_of(st.just(Limits()), st.just(LIMITS), st.just(Limits(turns=1, spend_usd=0))),
    depth=st.integers(0, 30),
    status=st.sampled_from(get_args(Status)),
)
def test_no_line_is_wider_than_the_terminal_and_none_steers_it(
    width: int, name: str, note: str, turns: int, tokens: int, spend: int, limits: Limits,
    depth: int, status: Status,
) -> None:  # fmt: skip
    node = thread(
        name, status, turns=turns, tokens=tokens, spend_microcents=spend, limits=limits, note=note
    )
    for _ in range(depth):
        node = thread(name, children=(node, thread(name, note=note)), note=note)
    text = render_tree((node,), width=width, now=NOW, max_rows=20)
    for line in text.lines:
        said = "".join(span for span, _ in line)
        assert all(unicodedata.category(one)[0] != "C" for one in said)
        assert columns(said) <= width
    assert text.html().count("<span") == text.html().count("</span>")


def test_text_that_would_turn_or_steer_a_terminal_is_seen_as_such() -> None:
    shown = "\n".join(drawn(thread("a\x1b[2Jb\u202ec\r\nd\u2028e", note="\x1b]0;x\x07")))
    assert "a�[2Jb�c d e" in shown
    assert "�]0;x�" in shown


def test_a_large_tree_shows_what_runs_and_counts_the_rest() -> None:
    scans = [thread(f"scan-{n}", "completed") for n in range(500)]
    scans[3] = thread("broken", "error")
    scans[321] = thread("busy", children=tuple(thread(f"part-{n}") for n in range(3)))
    lines = drawn(thread("audit", children=tuple(scans)), max_rows=10)
    shown = "\n".join(lines)
    assert all(name in shown for name in ("busy", "part-0", "part-1", "part-2", "broken"))
    assert "… 495 more: 495 completed" in shown
    assert len(lines) == 10 + 4
    assert lines[-2].startswith("504 threads")
    assert lines[-1].split() == ["▸", "5", "running", "✓", "498", "completed", "✗", "1", "error"]


@given(
    st.recursive(
        st.sampled_from(get_args(Status)).map(lambda status: thread("x", status)),
        lambda below: st.lists(below, min_size=1, max_size=6).map(
            lambda ones: thread("x", children=tuple(ones))
        ),
        max_leaves=60,
    ),
    st.integers(1, 30),
)
def test_rows_keep_within_their_number_and_count_every_thread(root: TreeNode, most: int) -> None:
    rows = rows_of([root], most)
    shown = sum(1 for row in rows if row.node is not None)
    assert shown + sum(len(row.left_out) for row in rows) == sum(1 for _ in root.walk())
    assert len(rows) <= max(most, _deepest_running(root))
    assert rows[0].node is root


def _deepest_running(root: TreeNode) -> int:
    """The rows of the one thread that is always shown: its path, and a row for what each leaves."""
    depth = {id(root): 1}
    for one in root.walk():
        for child in one.children:
            depth[id(child)] = depth[id(one)] + 1
    return 2 * max(depth.values())


def test_tokens_and_spend_count_a_thread_with_all_below_it_and_turns_its_own() -> None:
    (root, *_) = rows_of([TREE], 40)
    assert (root.tokens, root.spend_microcents) == (180_000, 31 * USD // 100)
    assert " 6/8" in drawn(TREE)[1]


def test_a_tree_of_one_needs_no_totals() -> None:
    assert len(drawn(thread("x"))) == 2


def test_deep_and_wide_trees_are_drawn_without_recursion() -> None:
    node = thread("leaf")
    for _ in range(3000):
        node = thread("x", "completed", children=(node,))
    assert len(render_tree((node,), width=80, now=NOW).lines) > 3000  # it leads to what runs
    assert isinstance(render_tree((), width=80, now=NOW), StyledText)


@pytest.mark.parametrize(
    ("microcents", "written"),
    [(0, "$0"), (4_800, "$0.000048"), (720_000, "$0.0072"), (10_000_000, "$0.1"), (USD, "$1")],
)
def test_an_amount_of_money_is_written_in_one_way(microcents: int, written: str) -> None:
    assert dollars(microcents) == written
    assert out_of(microcents, USD // 2, dollars) == (written, "/0.5")
    assert out_of(microcents, None, dollars) == (written, "")


def asked(*tools: str) -> tuple[ThreadApproval, ...]:
    return tuple(
        ThreadApproval(f"id{at}", "t", "c", name, {}, "", "") for at, name in enumerate(tools)
    )


def test_a_thread_that_waits_for_an_approval_names_the_command() -> None:
    waits = thread("acme/buy", approvals=asked("order"))
    lines = drawn(thread("acme/desk", children=(waits,)))
    assert lines[2].startswith("└─ ? acme/buy")
    assert lines[-1] == "? waits for approval of order: rye threads approve acme/buy-1"
    (span, *_) = drawn(waits, width=30)[-1:]
    assert span == "? rye threads approve acme/buy"[:29] + "…"
    two = thread("acme/buy", approvals=asked("order", "refund"))
    assert drawn(two)[-1] == "? waits for approval of 2 calls: rye threads approvals"


def test_threads_that_wait_come_first_and_are_counted() -> None:
    many = [thread(f"acme/w{at}", approvals=asked("order")) for at in range(5)]
    failed = [thread(f"acme/f{at}", "error", note="broken") for at in range(50)]
    lines = drawn(thread("acme/desk", children=(*failed, *many)), max_rows=8)
    assert sum("? acme/w" in line for line in lines) == 5
    assert lines[-1] == "  3 more wait: rye threads approvals"
    assert not any("broken" in line for line in lines)


def test_a_hostile_tool_name_draws_nothing() -> None:
    shown = "\n".join(drawn(thread("acme/buy", approvals=asked("a\x1b[2J\nb\u202ec" + "x" * 500))))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert all(columns(line) <= 80 for line in shown.split("\n"))


def test_a_change_says_what_a_thread_waits_for() -> None:
    text = StyledText()
    text.line(*render_change(thread("acme/buy", approvals=asked("order")), now=NOW))
    assert text.plain() == (
        "? acme/buy-1  running  1:00  waits for approval of order: rye threads approve acme/buy-1"
    )
