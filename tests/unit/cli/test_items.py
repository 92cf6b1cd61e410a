"""The commands that read items, as real processes."""


def test_fetch_prints_the_items_own_text_and_says_what_shadows_it(house, run):
    path = house.write("knowledge/k.md", "# Tides\nHigh.\n")
    house.write("knowledge/k.md", "user's\n", space="user")

    done = run("fetch", "knowledge:k")
    shadowed = run("fetch", "knowledge:k", "--source", "user")

    assert (done.code, done.out) == (0, path.read_text())
    assert "shadows" in done.err
    assert "user's" in shadowed.out
    assert "shadowed by" in shadowed.err
    document = run("fetch", "knowledge:k", "--json").json
    assert document["content"] == path.read_text()


def test_fetch_copies_to_another_space(house, run):
    house.write("knowledge/k.md", "High.\n")
    done = run("fetch", "knowledge:k", "--copy-to", "user")
    assert done.code == 0
    assert str(house.path("knowledge/k.md", "user")) in done.out
    assert run("verify", str(house.path("knowledge/k.md", "user"))).code == 0


def test_fetch_refuses_what_is_changed_with_exit_code_2(house, run):
    path = house.write("knowledge/k.md", "High.\n")
    path.write_text(path.read_text() + "low")
    done = run("fetch", "knowledge:k")
    assert (done.code, done.out) == (2, "")
    assert "changed after" in done.err
    assert run("fetch", "knowledge:k", "--source", "moon").code == 2
