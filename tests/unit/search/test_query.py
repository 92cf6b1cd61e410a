"""The query language, and that no text at all breaks SQLite."""

import sqlite3
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ryecore.errors import InvalidQuery
from ryecore.search.query import FIELDS, parse_scope, translate


def database() -> sqlite3.Connection:
    opened = sqlite3.connect(":memory:")
    opened.execute(f"CREATE VIRTUAL TABLE items USING fts5({', '.join(FIELDS)})")
    opened.execute(
        "INSERT INTO items VALUES ('rye/file-system/write', 'Write files', 'Tides of the sea', "
        "'rye file-system', 'disk', 'one two three four five six seven')"
    )
    return opened


DATABASE = database()


def finds(query: str) -> bool:
    match = translate(query).match
    if match is None:
        return True
    return bool(DATABASE.execute("SELECT 1 FROM items WHERE items MATCH ?", (match,)).fetchall())


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("*", None),
        ("  * ", None),
        ("tides", '"tides"'),
        ("tides moon", '("tides" AND "moon")'),
        ("tides AND moon", '("tides" AND "moon")'),
        ("and or not", '("and" AND "or" AND "not")'),
        ("a OR b c", '("a" OR ("b" AND "c"))'),
        ("a NOT b NOT c", '("a" NOT ("b" OR "c"))'),
        ("(a OR b) c", '(("a" OR "b") AND "c")'),
        ('"high tide"', '"high tide"'),
        ('"say ""x"""', '"say ""x"""'),
        ("tid*", '"tid" *'),
        ('"high tid"*', '"high tid" *'),
        ("file-system/write.py", '"file-system/write.py"'),
        ("tool:rye/bash", '"rye/bash"'),
        ("title:tides", 'title : ("tides")'),
        ("Title: (a OR b)", 'title : (("a" OR "b"))'),
        ("http://x", '"http://x"'),
        ("NEAR(a b)", 'NEAR("a" "b", 10)'),
        ('NEAR(a "b c"*, 5)', 'NEAR("a" "b c" *, 5)'),
        ("a ++ b", '("a" AND "b")'),
        ("a * b", '("a" AND "b")'),
        ("a NOT ++", '"a"'),
        ("a\0b", '"a b"'),
    ],
)
def test_a_query_becomes_this_one_of_fts5(query, expected):
    assert translate(query).match == expected


@pytest.mark.parametrize(
    "query",
    ["file-system/write", "rye/file-system", "WRITE", "tid* sea", "NEAR(one three, 2)",
     "name: write NOT moon", "(moon OR disk) seven", "tool:rye/file-system/write", "tides AND *"],
)  # fmt: skip
def test_these_find_the_item(query):
    assert finds(query)


@pytest.mark.parametrize(
    "query", ["moon", "title: sea", "NEAR(one seven, 2)", "write NOT sea", '"sea tides"']
)
def test_these_do_not(query):
    assert not finds(query)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "no word"),
        ("   ", "no word"),
        ("++", "no word"),
        ("()", "nothing before"),
        ("(++)", "no word"),
        ('say "hello', "character 5: the quote is never closed"),
        ("(a OR (b)", "character 1: the parenthesis is never closed"),
        ("a)", "character 2: nothing opened"),
        ("AND a", "character 1: AND needs a word"),
        ("a OR", "character 5: a word is missing"),
        ("a OR OR b", "character 6: OR needs"),
        ("NOT a", "NOT needs a word"),
        ("++ NOT a", "nothing on its left"),
        ("title:", "a word is missing"),
        ("NEAR(a b", "NEAR is never closed"),
        ("NEAR(a (b))", "NEAR takes words"),
        ("(" * 50 + "a" + ")" * 50, "too deeply"),
        ("title:" * 50 + "a", "too deeply"),
        ("a " * 65, "more than 64 words"),
        ("a" * 1001, "1001 characters"),
    ],
)
def test_a_query_that_cannot_be_read_is_refused_with_its_place(query, message):
    with pytest.raises(InvalidQuery, match=message) as refused:
        translate(query)
    assert refused.value.next_step
    assert refused.value.query == query[:1000]


def test_an_empty_query_is_told_of_the_star():
    with pytest.raises(InvalidQuery, match=r"\* to list everything"):
        translate(" ")


PARTS = st.sampled_from([
    "a", "tides", "OR", "AND", "NOT", "NEAR(", "(", ")", '"', '""', "*", "title:", "{", "}", "^",
    "-", "+", ":", ",", "5", "\0", "\ud800", "é", "🌊", "'", ";", "--", " ", "\n", "name", "rank",
])  # fmt: skip


@given(st.one_of(st.lists(PARTS, max_size=30).map("".join), st.lists(PARTS).map(" ".join),
                 st.text(max_size=60)))  # fmt: skip
@example("(" * 20 + "a" + ")" * 20)
@example("title:" * 20 + "a")
@example("NEAR(" + "a " * 64 + ")")
@example(" ".join("(a NOT b)" for _ in range(32)))
def test_no_text_is_a_syntax_error_of_sqlite(query):
    with suppress(InvalidQuery):
        finds(query)


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ("*", ()),
        ("tides OR moon", ("tides", "moon")),
        ('tid* "high tide"', ("tid*", "high tide")),
        ("title: tool:rye/bash", ("rye/bash",)),
        ('NEAR(a "b c"*, 5)', ("a", "b c*")),
    ],
)
def test_what_is_looked_for_is_known_for_the_preview(query, phrases):
    assert translate(query).phrases == phrases


@pytest.mark.parametrize("query", ["files", "title: write", "write NOT files", "sea OR write"])
def test_a_query_can_be_asked_of_names_alone(query):
    match = translate(query).of_names().match
    found = DATABASE.execute("SELECT 1 FROM items WHERE items MATCH ?", (match,)).fetchall()
    assert bool(found) == (query not in ("files", "title: write"))


@pytest.mark.parametrize(
    ("scope", "kinds", "inside", "outside"),
    [
        ("*", ("tool", "directive", "knowledge", "config"), [("config", "a")], []),
        ("tool", ("tool",), [("tool", "a/b")], [("directive", "a")]),
        ("tool.*", ("tool",), [("tool", "a/b")], [("directive", "a")]),
        ("tool.ns.*", ("tool",), [("tool", "ns/a"), ("tool", "ns/a/b")], [("tool", "nsx/a")]),
        ("tool:ns/*", ("tool",), [("tool", "ns/a")], [("tool", "other")]),
        ("tool:", ("tool",), [("tool", "ns/a")], []),
        ("rye.fetch.tool.ns.*", ("tool",), [("tool", "ns/a")], [("tool", "other")]),
        ("knowledge:ns/a", ("knowledge",), [("knowledge", "ns/a")], [("knowledge", "ns/ab")]),
        (["tool", "knowledge.a.*"], ("tool", "knowledge"), [("knowledge", "a/b")],
         [("knowledge", "b")]),
    ],
)  # fmt: skip
def test_a_scope_holds_these_items(scope, kinds, inside, outside):
    parsed = parse_scope(scope)
    assert parsed.kinds == kinds
    assert all(parsed.holds(*item) for item in inside)
    assert not any(parsed.holds(*item) for item in outside)


@pytest.mark.parametrize(
    "scope", ["", "ns.*", "rye.fetch.*", "rye.fetch.ns.*", "banana", "tool.a b", [], [7], 7, None,
              ["tool"] * 40],
    ids=repr,
)  # fmt: skip
def test_a_scope_without_a_kind_is_refused(scope):
    with pytest.raises(InvalidQuery, match="scope must specify a kind") as refused:
        parse_scope(scope)
    assert "tool" in refused.value.next_step
