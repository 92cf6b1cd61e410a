"""What a tool's arguments may name, and who is asked."""

from pathlib import Path
from typing import Any

import pytest

from ryecore.errors import HostCapabilityMissing, ToolPolicyError
from ryecore.policy import CallContext
from ryecore.tools import ToolApprovalRequest, ToolContext, ToolDef, ToolPolicy
from tests.unit.tools.calls import called, refused

pytestmark = pytest.mark.anyio


async def do(
    command: str | list[str] | None = None,
    url: str | list[str] | None = None,
    path: str | list[str] | None = None,
    target: str | None = None,
) -> list[Any]:
    """Do."""
    return [command, url, path, target]


POLICY = ToolPolicy(
    command_args=("command",),
    allow_commands=("git status", "ls"),
    url_args=("url",),
    allow_domains=("example.org", "*.example.net"),
    path_args=("path",),
    write_path_args=("target",),
)
DO = ToolDef.from_function(do, policy=POLICY)


class Person:
    """Somebody who is asked, and remembers."""

    def __init__(self, answer: Any = True) -> None:
        self.answer = answer
        self.asked: list[ToolApprovalRequest] = []

    async def __call__(self, request: ToolApprovalRequest, /) -> bool:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


async def test_what_is_listed_is_done() -> None:
    done = await called(
        DO, {"command": "git status -s", "url": ["https://example.org/", "https://a.example.net"]}
    )
    assert done.value[0] == "git status -s"
    assert (await called(DO, {"command": ["ls", "-l"]})).value[0] == ["ls", "-l"]
    assert (await called(DO)).value == [None] * 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"command": "git push"}, "this command: the command 'git' is not allowed"),
        ({"command": "ls; rm x"}, "this command: it holds ';'"),
        ({"command": []}, "this command: it has to be a list of words, at least one"),
        ({"url": "https://evil.test"}, "this url: the host evil.test is not allowed"),
        ({"url": "https://example.org:444"}, "the host example.org:444 is not allowed"),
        ({"url": ["https://example.org", "http://evil.test"]}, "evil.test"),
        ({"url": "file:///x"}, "a URL of http"),
    ],
)
async def test_what_is_not_listed_is_denied(arguments: dict[str, Any], said: str) -> None:
    error = await refused(ToolPolicyError, DO, arguments)

    assert said in str(error)
    assert error.argument in arguments


async def test_paths_become_what_was_judged(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    ctx = ToolContext(fs_root=tmp_path)

    done = await called(DO, {"path": ["link", "a"], "target": "new"}, ctx)

    real = tmp_path.resolve()
    assert done.value[2:] == [[f"{real}/a", f"{real}/a"], f"{real}/new"]
    for arguments in ({"path": "../x"}, {"path": ["a", "/etc/passwd"]}, {"target": ".env"}):
        error = await refused(ToolPolicyError, DO, arguments, ctx)
        assert str(tmp_path) not in str(error)


async def test_a_path_needs_a_folder_of_the_hosts() -> None:
    for scope in ("sandboxed", "project"):
        error = await refused(HostCapabilityMissing, DO, {"path": "x"}, ToolContext(fs_scope=scope))
        assert error.capability == "fs"
    done = await called(DO, {"path": "/etc"}, ToolContext(fs_scope="unrestricted"))
    assert done.value[2] == "/etc"


def test_a_policy_that_would_look_at_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="do has no parameter 'uri'"):
        ToolDef.from_function(do, policy=ToolPolicy(url_args=("uri",)))
    with pytest.raises(ValueError, match="open has no parameter 'uri'"):
        ToolDef(
            name="open",
            description="",
            parameters={"properties": {"url": {}}},
            policy=ToolPolicy(url_args=("uri",)),
            run=do,  # type: ignore[arg-type]
        )
    with pytest.raises(TypeError, match="a tuple of names"):
        ToolPolicy(url_args="url")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="isn't a host"):
        ToolPolicy(allow_domains=["https://example.org"])
    with pytest.raises(ValueError, match="unlisted"):
        ToolPolicy(unlisted="allow")  # type: ignore[arg-type]


async def test_a_person_can_be_asked_about_what_is_not_listed() -> None:
    from attrs import evolve

    tool = ToolDef.from_function(do, policy=evolve(POLICY, unlisted="ask"))
    person = Person()
    call = CallContext()
    arguments = {"command": "git push", "url": "https://evil.test"}

    await called(tool, arguments, ToolContext(approve=person, call=call))

    (request,) = person.asked
    assert request.arguments == arguments
    assert "'git' is not listed" in request.reason
    assert "evil.test is not listed" in request.reason
    assert (request.tool_name, request.tool_call_id, request.call_id) == (
        "do",
        "call-1",
        call.call_id,
    )
    await refused(ToolPolicyError, tool, arguments)
    for never in ({"command": "ls; x"}, {"url": "file:///x"}, {"path": "../x"}):
        await refused(
            ToolPolicyError, tool, never, ToolContext(approve=person, fs_root=Path("/tmp"))
        )
    assert len(person.asked) == 1


async def fire(where: dict[str, int], key: str = "") -> dict[str, int]:
    """Fire."""
    return where


FIRE = ToolDef.from_function(fire, needs_approval=True, config={"key": "s3cret"})


async def test_a_tool_that_asks_runs_only_on_a_clear_yes() -> None:
    events: list[Any] = []
    for answer in (False, None, 1, "yes", ValueError("s3cret")):
        ctx = ToolContext(approve=Person(answer))
        error = await refused(ToolPolicyError, FIRE, {"where": {"x": 1}}, ctx, events=events)
        assert "was not approved" in str(error)
        assert "s3cret" not in str(error)
    error = await refused(ToolPolicyError, FIRE, {"where": {"x": 1}}, events=events)
    assert "nobody to ask" in str(error)
    assert events == []
    await called(FIRE, {"where": {"x": 1}}, ToolContext(approve=Person()), events=events)
    assert len(events) == 2


async def test_what_was_approved_is_what_runs() -> None:
    class Forger(Person):
        async def __call__(self, request: ToolApprovalRequest, /) -> bool:
            assert dict(request.arguments) == {"where": {"x": 1}}
            request.arguments["where"]["x"] = 666
            return True

    done = await called(FIRE, {"where": {"x": 1}}, ToolContext(approve=Forger()))

    assert done.value == {"x": 1}


async def test_nobody_is_asked_about_what_is_denied_anyway() -> None:
    person = Person()
    ctx = ToolContext(approve=person, grant=frozenset())

    await refused(ToolPolicyError, FIRE, {"where": {}}, ctx)
    from ryecore.errors import ToolArgsInvalidError

    await refused(ToolArgsInvalidError, FIRE, {"where": 3}, ToolContext(approve=person))

    assert person.asked == []
