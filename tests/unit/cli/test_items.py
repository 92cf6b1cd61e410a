"""The commands that read items, as real processes."""


def test_fetch_prints_the_items_own_text_and_says_what_shadows_it(workspace, run):
    path = workspace.write("knowledge/k.md", "# Tides\nHigh.\n")
    workspace.write("knowledge/k.md", "user's\n", space="user")

    done = run("fetch", "knowledge:k")
    shadowed = run("fetch", "knowledge:k", "--source", "user")

    assert (done.code, done.out) == (0, path.read_text())
    assert "shadows" in done.err
    assert "user's" in shadowed.out
    assert "shadowed by" in shadowed.err
    document = run("fetch", "knowledge:k", "--json").json
    assert document["content"] == path.read_text()


def test_fetch_copies_to_another_space(workspace, run):
    workspace.write("knowledge/k.md", "High.\n")
    done = run("fetch", "knowledge:k", "--copy-to", "user")
    assert done.code == 0
    assert str(workspace.path("knowledge/k.md", "user")) in done.out
    assert run("verify", str(workspace.path("knowledge/k.md", "user"))).code == 0


def test_fetch_refuses_what_is_changed_with_exit_code_2(workspace, run):
    path = workspace.write("knowledge/k.md", "High.\n")
    path.write_text(path.read_text() + "low")
    done = run("fetch", "knowledge:k")
    assert (done.code, done.out) == (2, "")
    assert "changed after" in done.err
    assert run("fetch", "knowledge:k", "--source", "moon").code == 2


def test_search_lists_what_was_found_and_where_the_next_page_begins(workspace, run):
    for number in range(3):
        workspace.write(f"knowledge/k{number}.md", f"# Tide {number}\nThe moon pulls.\n")
    workspace.write("knowledge/k0.md", "# Tide\n", space="user")
    workspace.write("knowledge/other.md", "# Tide\n", sign=False)

    first = run("search", "tide", "--scope", "knowledge", "--limit", "2")
    rest = run("search", "tide", "--scope", "knowledge", "--offset", "2")

    assert first.code == 0
    assert first.out.splitlines()[-1] == "1 to 2 of 5; next page: --offset 2"
    assert rest.out.splitlines()[-1] == "3 to 5 of 5"
    both = first.out + rest.out
    assert "✓ knowledge:k1  Tide 1  project" in both
    assert "! knowledge:other  Tide  project  unsigned" in both
    assert "shadowed by" in both
    assert run("search", "no-such-word").out == "0 of 0\n"


def test_search_prints_one_json_document_and_refuses_a_broken_query(workspace, run):
    workspace.write("knowledge/k.md", "tide\n")
    document = run("search", "tide", "--scope", "knowledge", "--json").json
    assert [result["id"] for result in document["results"]] == ["knowledge:k"]
    broken = run("search", 'tide "moon')
    assert (broken.code, broken.out) == (2, "")
    assert "character 6" in broken.err
    assert run("search", "tide", "--scope", "banana").code == 2
    assert run("search", "tide", "--limit", "1000").code == 2


def test_search_takes_its_words_as_they_are_typed(workspace, run):
    workspace.write("knowledge/acme/tides.md", "---\ntitle: Tides\n---\nThe moon pulls.\n")
    workspace.write("knowledge/acme/wind.md", "---\ntitle: Wind\n---\nThe sun heats.\n")
    found = run("search", "moon", "OR", "sun", "--scope", "knowledge", "--json").json
    assert {one["id"] for one in found["results"]} == {
        "knowledge:acme/tides",
        "knowledge:acme/wind",
    }
    assert run("search", "moon sun", "--json").json["total"] == 0
