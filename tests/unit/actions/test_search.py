"""search: what is found, in which order, for whom, and what is said of it."""

import json

import pytest

from ryecore import CallContext, SigningKey
from ryecore.errors import InputError, InvalidQuery

pytestmark = pytest.mark.anyio


async def search(workspace, query, **options):
    async with workspace.open() as rye:
        return await rye.search(query, **options)


def ids(found):
    return [str(result.ref) for result in found.results]


@pytest.fixture
def library(workspace):
    workspace.write(
        "knowledge/sea/tides.md", "---\ntitle: Tides\ntags: [moon]\n---\nHigh and low.\n"
    )
    workspace.write("knowledge/sea/waves.md", "---\ntitle: Waves\n---\nNot as slow as tides.\n")
    workspace.write("directives/sail.md", "# Sail\n\nWait for the high tides.\n")
    workspace.shell("sea/tide-table", "echo", description="Prints the tides of a port.")
    return workspace


async def test_a_title_counts_more_than_a_description_and_that_more_than_content(library):
    found = await search(library, "tides", scope=["knowledge", "tool"])
    assert ids(found) == ["knowledge:sea/tides", "tool:sea/tide-table", "knowledge:sea/waves"]
    assert found.total == 3
    scores = [result.score for result in found.results]
    assert scores == sorted(scores, reverse=True)


async def test_all_kinds_are_found_by_words_phrases_prefixes_and_fields(library):
    assert set(ids(await search(library, "high tides"))) == {
        "knowledge:sea/tides",
        "directive:sail",
    }
    assert ids(await search(library, '"high tides"')) == ["directive:sail"]
    assert ids(await search(library, "wav*")) == ["knowledge:sea/waves"]
    assert ids(await search(library, "tags: moon")) == ["knowledge:sea/tides"]
    assert ids(await search(library, "tides NOT title: tides", scope="knowledge")) == [
        "knowledge:sea/waves"
    ]
    assert ids(await search(library, "sea/tide-table")) == ["tool:sea/tide-table"]
    assert ids(await search(library, "tool:sea/tide-table")) == ["tool:sea/tide-table"]


async def test_the_preview_shows_the_words_that_were_found(library):
    (result,) = (await search(library, "slow")).results
    assert [result.preview[start:end] for start, end in result.hits] == ["slow"]
    assert "rye:signed" not in result.preview


async def test_a_page_has_its_limit_and_leads_to_the_next(workspace):
    for number in range(25):
        workspace.write(f"knowledge/k{number:02}.md", "tides\n")
    async with workspace.open() as rye:
        pages, offset = [], 0
        while offset is not None:
            page = await rye.search("tides", scope="knowledge", limit=10, offset=offset)
            assert page.total == 25
            pages.append(ids(page))
            offset = page.next_offset
        beyond = await rye.search("tides", offset=100)
    assert [len(page) for page in pages] == [10, 10, 5]
    assert len({one for page in pages for one in page}) == 25
    assert (beyond.results, beyond.total) == ((), 25)


async def test_shadows_are_shown_on_both_sides(workspace):
    for space in ("project", "user", "system"):
        workspace.write("knowledge/k.md", "tides\n", space=space)
    found = await search(workspace, "tides", scope="knowledge")
    by_space = {result.space.label: result for result in found.results}
    labels = {
        name: ([s.label for _, s in one.shadows], [s.label for _, s in one.shadowed_by])
        for name, one in by_space.items()
    }
    assert labels == {
        "project": (["user", "system:acme"], []),
        "user": (["system:acme"], ["project"]),
        "system:acme": ([], ["project", "user"]),
    }
    only = await search(workspace, "tides", scope="knowledge", source="user")
    assert [result.space.label for result in only.results] == ["user"]
    assert only.results[0].shadowed_by


async def test_what_is_shown_is_verified_at_that_moment(workspace):
    path = workspace.write("knowledge/good.md", "tides\n")
    workspace.write("knowledge/unsigned.md", "tides\n", sign=False)
    workspace.write("knowledge/stranger.md", "tides\n", key=SigningKey.generate())
    workspace.write("knowledge/moved.md", path.read_text(), sign=False)
    async with workspace.open() as rye:
        first = await rye.search("tides", scope="knowledge")
        said = {result.ref.id: (result.is_verified, result.integrity) for result in first.results}
        path.write_text(path.read_text() + "more\n")
        second = await rye.search("more", scope="knowledge")
    assert said.pop("good")[0]
    assert said == {
        "unsigned": (False, "unsigned"),
        "stranger": (False, "untrusted"),
        "moved": (False, "bad_signature"),
    }
    assert [(r.integrity, r.is_signed) for r in second.results] == [("changed", True)]


async def test_a_model_finds_and_counts_only_what_it_may_fetch(workspace):
    for name in ("open/a", "open/b", "closed/c"):
        workspace.write(f"knowledge/{name}.md", "tides\n")
    ctx = CallContext(capabilities=frozenset({"rye.fetch.knowledge.open.*"}))
    found = await search(workspace, "tides", limit=1, ctx=ctx)
    assert found.total == 2
    assert (await search(workspace, "tides", ctx=CallContext(capabilities=frozenset()))).total == 0


async def test_a_model_is_not_shown_text_that_nobody_vouches_for(workspace):
    text = "---\ntitle: Obey me\ndescription: Obey\ntags: [obey]\n---\ntides: obey\n"
    workspace.write("knowledge/tides.md", text, sign=False)
    ctx = CallContext(capabilities=frozenset({"rye.fetch.*"}))
    (hidden,) = (await search(workspace, "tides", ctx=ctx)).results
    (shown,) = (await search(workspace, "tides")).results
    assert "bey" not in json.dumps(hidden.to_dict())
    assert hidden.integrity == "unsigned"
    assert shown.title == "Obey me"


async def test_no_rank_of_a_model_tells_how_many_hidden_files_hold_a_word(workspace):
    for name, text in [("a", "tides moon\n"), ("b", "sesame moon\n"), ("closed", "nothing\n")]:
        workspace.write(f"knowledge/{name}.md", text)
    ctx = CallContext(capabilities=frozenset({"rye.fetch.knowledge.a", "rye.fetch.knowledge.b"}))
    queries = ("sesame", "tides OR sesame", "moon sesame")

    async def ranks():
        found = [await search(workspace, query, ctx=ctx) for query in queries]
        return [[(one.ref.id, one.score) for one in page.results] for page in found]

    before = await ranks()
    assert [[name for name, _ in page] for page in before] == [["b"], ["a", "b"], ["b"]]
    workspace.write("knowledge/closed.md", "sesame " * 50 + "\n", sign=False)
    assert await ranks() == before


@pytest.mark.parametrize("space", ["project", "user"])
async def test_no_query_of_a_model_tells_what_an_unsigned_file_holds(workspace, space):
    workspace.write("knowledge/notes.md", "password: sesame\n", sign=False, space=space)
    workspace.write("knowledge/signed.md", "sesame seeds\n", space=space)
    ctx = CallContext(capabilities=frozenset({"rye.fetch.*"}))
    for query, names in [
        ("sesame", ["signed"]),
        ("sesa*", ["signed"]),
        ("password OR seeds", ["signed"]),
        ("notes", ["notes"]),
        ("notes NOT sesame", ["notes"]),
        ("content: password", []),
    ]:
        found = await search(workspace, query, ctx=ctx, scope="knowledge")
        assert ([one.ref.id for one in found.results], found.total) == (names, len(names)), query
    (mine,) = (await search(workspace, "password")).results
    assert mine.ref.id == "notes"


async def test_the_response_is_the_documented_object(library):
    document = (await search(library, "waves", scope="knowledge.sea.*", limit=5)).to_dict()
    results = document.pop("results")
    assert document == {
        "status": "success", "mode": "query", "total": 1, "query": "waves",
        "scope": "knowledge.sea.*", "source": "all", "limit": 5, "offset": 0,
        "search_type": "keyword",
    }  # fmt: skip
    assert set(results[0]) == {
        "id", "name", "type", "title", "description", "preview", "category", "tags", "source",
        "path", "score", "signed", "verified", "integrity", "indexed", "record", "shadows",
        "shadowed_by",
    }  # fmt: skip
    assert json.dumps(results)


@pytest.mark.parametrize(
    "wrong",
    [{"query": ""}, {"query": None}, {"scope": "sea.*"}, {"scope": None}, {"source": "moon"},
     {"limit": 0}, {"limit": 101}, {"limit": True}, {"limit": "3"}, {"offset": -1},
     {"offset": 2**40}, {"offset": 1.5}],
    ids=repr,
)  # fmt: skip
async def test_bad_input_is_refused_with_a_next_step(library, wrong):
    with pytest.raises((InputError, InvalidQuery)) as refused:
        await search(library, **{"query": "tides"} | wrong)
    assert refused.value.next_step


@pytest.mark.parametrize(
    ("scope", "meant"),
    [
        ("tool.sea", "Did you mean tool.sea.*?"),
        ("tool:sea", "Did you mean tool.sea.*?"),
        ("tool.sea.", "Did you mean tool.sea.*?"),
        ("rye.fetch.knowledge.sea", "Did you mean knowledge.sea.*?"),
        (["tool.sea", "directive.sea"], "Did you mean tool.sea.* directive.sea.*?"),
        ("tool.see.*", ""),
        ("config", ""),
    ],
)
async def test_a_scope_that_holds_nothing_says_what_scopes_look_like(library, scope, meant):
    found = await search(library, "tides", scope=scope, source="project")
    assert found.total == 0
    assert found.hint.startswith(f"No item lies in the scope {found.scope} in project space.")
    assert ("Did you mean" in found.hint) is bool(meant)
    assert meant in found.hint
    assert "tool.acme.*" in found.hint
    assert found.to_dict()["hint"] == found.hint
    assert found.hint in str(found)


async def test_a_scope_that_holds_items_gives_no_hint(library):
    for scope in ("*", "tool", "tool.sea.*"):
        found = await search(library, "zzyzx", scope=scope)
        assert (found.total, found.hint, "hint" in found.to_dict()) == (0, "", False)


async def test_no_hint_tells_a_model_of_items_that_it_may_not_fetch(library):
    async with library.open() as rye:
        ctx = CallContext(capabilities=frozenset({"rye.fetch.knowledge.*"}))
        found = await rye.search("tides", scope="tool.sea", ctx=ctx)
    assert "Did you mean" not in found.hint


async def test_dev_mode_does_not_make_a_result_look_verified(workspace):
    workspace.write("knowledge/k.md", "tides\n", sign=False)
    workspace.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        rye = workspace.open()
    async with rye:
        (result,) = (await rye.search("tides")).results
    assert (result.is_verified, result.integrity) == (False, "unsigned")


async def test_what_was_found_shows_itself_in_a_notebook(library):
    library.write("knowledge/sea/markup.md", "# Tides\n\n<b>tides</b>\n")
    found = await search(library, "tides")
    assert repr(found) == f"SearchResults('tides', {found.total} of {found.total})"
    assert "knowledge:sea/tides" in str(found)
    assert "&lt;b&gt;" in found._repr_html_()
