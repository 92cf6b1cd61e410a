"""`read_file` in a prompt: within what the host allows, and never what looks like secrets."""

import os

import pytest

from ryecore.agent.deps import ResolverCapabilities
from tests.unit.agent.studio import Studio

pytestmark = pytest.mark.anyio

PROMPT = "Read: {{ inputs.path | read_file }}"


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "notes.md").write_text("the tide is high {{ inputs.other }}")
    (inside / ".env").write_text("API_KEY=1")
    (inside / "large.txt").write_text("x" * 2000)
    (inside / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "outside.md").write_text("secret")
    (inside / "link.md").symlink_to(tmp_path / "outside.md")
    os.mkfifo(inside / "pipe")
    return inside


def studio(folder, **deps):
    allowed = ResolverCapabilities(folder, max_file_bytes=1000)
    return Studio("ok", **{"resolver_capabilities": allowed} | deps)


async def test_a_file_is_put_in_once_as_it_is(folder):
    made = studio(folder)
    assert (
        await made.run(PROMPT, inputs={"path": "notes.md", "other": "no"})
    ).status == "completed"
    assert made.model.requests[0].messages[0].text == ("Read: the tide is high {{ inputs.other }}")


@pytest.mark.parametrize(
    "path",
    [
        "../outside.md", "link.md", ".env", "gone.md", "large.txt", "binary", "pipe", ".", "",
        "notes.md\0", "/etc/passwd",
    ],
)  # fmt: skip
async def test_what_may_not_or_cant_be_read_is_a_failed_validation(folder, path):
    made = studio(folder)
    done = await made.run(PROMPT, inputs={"path": path})
    assert done.failure.code == "validation", done
    assert made.model.requests == []
    assert str(folder.parent) not in done.failure.message


async def test_each_scope_has_a_folder_of_its_own(folder):
    allowed = ResolverCapabilities(sandbox=folder, project=folder.parent)
    for scope, path, status in (
        ("sandboxed", "notes.md", "completed"),
        ("project", "outside.md", "completed"),
        ("sandboxed", "outside.md", "failed"),
        ("project", "notes.md", "failed"),
    ):
        made = studio(folder, resolver_capabilities=allowed, fs_scope=scope)
        assert (await made.run(PROMPT, inputs={"path": path})).status == status


async def test_an_unrestricted_scope_reads_anywhere_but_no_secrets(folder):
    made = studio(folder, fs_scope="unrestricted")
    outside, secrets = str(folder.parent / "outside.md"), str(folder / ".env")
    assert (await made.run(PROMPT, inputs={"path": outside})).status == "completed"
    assert (await made.run(PROMPT, inputs={"path": secrets})).failure.code == "validation"


@pytest.mark.parametrize(
    "allowed", [None, ResolverCapabilities(None), ResolverCapabilities(read_file=False)]
)
async def test_a_host_that_offers_no_files_is_internal_and_named(allowed):
    done = await Studio("ok", resolver_capabilities=allowed).run(PROMPT, inputs={"path": "x"})
    assert done.failure.code == "internal"
    assert "read_file" in done.failure.message
