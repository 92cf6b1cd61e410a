"""Key files: revoked, expired, broken, and as they are written."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import IntegrityError, RevokedKey, SigningError, UnsignedItem, UntrustedKey
from ryecore.items.paths import source_at
from ryecore.items.signature import utc_now
from ryecore.items.spaces import Space, Spaces
from ryecore.items.trust import TrustStore, render_trusted_key
from ryecore.items.verification import Verifier
from ryecore.lillux.keys import SigningKey
from ryecore.lillux.witness import Evidence
from tests.unit.items.helpers import (
    FAR_AHEAD,
    LONG_AGO,
    PYTHON_TOOL,
    key_file,
    run_rye,
    tool,
    verify,
    with_fixtures,
)
from tests.workspace import Workspace


def test_revoked_in_user_space_beats_a_projects_file(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    key_file(workspace, stranger.public, workspace.key, "project")
    path = tool(workspace, stranger)
    assert verify(spaces, path).is_verified
    file = key_file(workspace, stranger.public, workspace.key, revoked=True)
    with pytest.raises(RevokedKey, match="was revoked") as refused:
        verify(spaces, path)
    assert str(file) in str(refused.value)
    assert refused.value.fingerprint == stranger.public.fingerprint
    assert run_rye(workspace, "sign", "tool:acme/x").exit_code == 0  # the next step
    assert verify(spaces, path).is_verified


def test_the_command_revokes_a_key(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    file = key_file(workspace, stranger.public, workspace.key)
    path = tool(workspace, stranger)
    assert verify(spaces, path).is_verified
    assert run_rye(workspace, "keys", "trust", "--revoke", str(file)).exit_code == 0
    with pytest.raises(RevokedKey):
        verify(spaces, path)


@pytest.mark.parametrize("space", ["project", "user"])
def test_a_key_counts_until_its_last_second(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey, space: str
) -> None:
    path = tool(workspace, stranger)
    key_file(workspace, stranger.public, workspace.key, space, not_after=FAR_AHEAD)
    assert verify(spaces, path).is_verified
    key_file(workspace, stranger.public, workspace.key, space, not_after=LONG_AGO)
    with pytest.raises(RevokedKey, match=f"expired at {LONG_AGO}"):
        verify(spaces, path)


def test_what_a_revoked_or_expired_key_vouched_for_is_refused(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    voucher = SigningKey.generate()
    key_file(workspace, stranger.public, voucher, "project")
    path = tool(workspace, stranger)
    key_file(workspace, voucher.public, workspace.key)
    assert verify(spaces, path).is_verified
    for options in ({"revoked": True}, {"not_after": LONG_AGO}):
        key_file(workspace, voucher.public, workspace.key, **options)  # type: ignore[arg-type]
        with pytest.raises(UntrustedKey):
            verify(spaces, path)


def test_a_decision_holds_no_longer_than_any_key_behind_it(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    sooner, later = "2090-01-01T00:00:00Z", "2095-01-01T00:00:00Z"
    voucher = SigningKey.generate()
    key_file(workspace, voucher.public, workspace.key, not_after=sooner)
    key_file(workspace, stranger.public, voucher, "project", not_after=later)
    evidence = Evidence()
    Verifier(TrustStore(spaces)).verify(source_at(tool(workspace, stranger), spaces), evidence)
    assert evidence.expires_at == sooner


def test_a_revocation_that_comes_later_is_noticed(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    key_file(workspace, stranger.public, workspace.key, "project")
    evidence = Evidence()
    Verifier(TrustStore(spaces)).verify(source_at(tool(workspace, stranger), spaces), evidence)
    witness = evidence.witness()
    assert witness.holds()
    key_file(workspace, stranger.public, workspace.key, revoked=True)
    assert not witness.holds()


@pytest.mark.parametrize(
    "written",
    [
        '"31.12.2099"',
        '"never"',
        '"2099-12-31"',
        '"2099-12-31T00:00:00"',
        '"2099-12-31T00:00:00+02:00"',
        "2099-12-31",
        "2099-12-31T00:00:00",
        "2099",
        '""',
        "true",
        "[]",
        "0001-01-01T00:00:00+23:59",
    ],
)
def test_a_not_after_of_another_form_is_refused_not_taken_for_ever(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey, written: str
) -> None:
    content = render_trusted_key(stranger.public, "x", not_after=FAR_AHEAD)
    content = content.replace(f'"{FAR_AHEAD}"'.encode(), written.encode())
    assert written.encode() in content
    key_file(workspace, stranger.public, workspace.key, content=content)
    with pytest.raises(UntrustedKey):
        verify(spaces, tool(workspace, stranger))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2099-12-31T02:00:00+02:00", "2099-12-31T00:00:00Z"),
        ("2099-12-31T00:00:00Z", "2099-12-31T00:00:00Z"),
    ],
)
def test_tomls_own_times_are_read_as_utc(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey, written: str, read: str
) -> None:
    content = render_trusted_key(stranger.public, "x", not_after=FAR_AHEAD)
    content = content.replace(f'"{FAR_AHEAD}"'.encode(), written.encode())
    path = key_file(workspace, stranger.public, workspace.key, content=content)
    key = TrustStore(spaces).lookup(stranger.public.fingerprint, spaces.user, path)
    assert key.not_after == read


@pytest.mark.parametrize("not_after", ["31.12.2099", "2099-12-31", "never", f"{FAR_AHEAD}\n"])
def test_a_not_after_of_another_form_is_never_written(
    workspace: Workspace, stranger: SigningKey, not_after: str
) -> None:
    with pytest.raises(SigningError, match="not a time in UTC") as refused:
        workspace.keys.trust(stranger.public, "x", not_after=not_after)
    example = refused.value.next_step.removeprefix("Write it like ").removesuffix(".")
    workspace.keys.trust(stranger.public, "x", not_after=example)


@pytest.mark.parametrize("value", ["true", '"no"', "1", "[]", '""', "0"])
def test_anything_but_false_is_revoked(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey, value: str
) -> None:
    content = f"revoked = {value}\n".encode() + render_trusted_key(stranger.public, "x")
    key_file(workspace, stranger.public, workspace.key, content=content)
    with pytest.raises(RevokedKey):
        verify(spaces, tool(workspace, stranger))


# Files that are none


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"public_key = [", "line 2"),
        (b"", "is not a key file"),
        (b"owner = 'x'\n", "is not a key file"),
        (b"public_key = 'x'\n", "is not a key file"),
        (b"[public_key]\npem = 5\n", "is not a key file"),
        (b"[public_key]\npem = 'nonsense'\n", "is not a key file"),
        (b"\xff\xfe", "is not a key file"),
        (b"a = " + b"[" * 50_000, "is not a key file"),
        (b"# padding\n" * 20_000, "can't be read"),
        (render_trusted_key(SigningKey.generate().public, "x"), "holds another key"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_a_file_that_is_no_key_file_is_passed_over_and_said(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey, content: bytes, says: str
) -> None:
    file = key_file(workspace, stranger.public, workspace.key, content=content or b"\n")
    with pytest.raises(UntrustedKey) as refused:
        verify(spaces, tool(workspace, stranger))
    assert says in str(refused.value)
    assert str(file) in str(refused.value)
    assert len(str(refused.value)) < 2000


def test_an_unsigned_key_file_in_user_space_is_refused(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    key_file(workspace, stranger.public, None)
    with pytest.raises(UntrustedKey, match="is not signed by a key that you trust"):
        verify(spaces, tool(workspace, stranger))


def test_a_changed_key_file_is_refused(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    file = key_file(workspace, stranger.public, stranger, not_after=LONG_AGO)
    file.write_bytes(file.read_bytes().replace(LONG_AGO.encode(), FAR_AHEAD.encode()))
    with pytest.raises(UntrustedKey):
        verify(spaces, tool(workspace, stranger))


def test_a_key_file_of_another_name_is_not_moved_into_place(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    """Its signature covers its name, so one key's file can't vouch for another."""
    other = SigningKey.generate()
    file = key_file(workspace, other.public, workspace.key)
    file.rename(file.with_name(f"{stranger.public.fingerprint}.toml"))
    with pytest.raises(UntrustedKey, match="holds another key"):
        verify(spaces, tool(workspace, stranger))


def test_a_broken_file_in_user_space_does_not_hide_the_projects(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    key_file(workspace, stranger.public, workspace.key, content=b"broken = [")
    key_file(workspace, stranger.public, workspace.key, "project")
    assert verify(spaces, tool(workspace, stranger)).is_verified


# What is written


@with_fixtures
@given(
    owner=st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
        st.sampled_from(
            [
                'x"\nrevoked = false\n[public_key]\npem = "evil',
                '"""',
                "'''",
                'a"""\nb',
                "\\",
                "\\u0041",
                "# rye:signed:",
                "[public_key]",
                "\x00\x1b\x7f",
                "a\r\nb",
            ]
        ),
    )
)
def test_an_owner_is_a_value_whatever_it_says(
    workspace: Workspace, spaces: Spaces, owner: str
) -> None:
    key = SigningKey.generate().public
    path = workspace.keys.trust(key, owner, revoked=False, not_after=FAR_AHEAD)
    document = tomllib.loads(path.read_text())
    assert set(document) == {
        *("version", "category", "fingerprint", "owner", "space", "not_after", "public_key"),
    }
    assert document["owner"] == owner.replace("\r\n", "\n")
    assert document["public_key"] == {"pem": key.pem.decode()}
    found = TrustStore(spaces).lookup(key.fingerprint, spaces.user, path)
    assert (found.key, found.not_after) == (key, FAR_AHEAD)


def test_every_key_is_listed_with_what_is_true_of_it(workspace: Workspace, spaces: Spaces) -> None:
    host, friend, revoked, planted, expired, here = (SigningKey.generate().public for _ in range(6))
    workspace.keys.trust(friend, "a friend", not_after=FAR_AHEAD)
    workspace.keys.trust(revoked, "gone", revoked=True)
    key_file(workspace, planted, None)
    key_file(workspace, expired, workspace.key, not_after=LONG_AGO)
    workspace.keys.trust(here, "only here", space=spaces.project)
    listed = {one.key: one for one in TrustStore(spaces, [host]).listed()}
    assert {key: one.status for key, one in listed.items()} == {
        host: "trusted",
        workspace.key.public: "trusted",
        friend: "trusted",
        revoked: "revoked",
        planted: "untrusted",
        expired: "expired",
        here: "trusted",
    }
    assert "not signed by a key that you trust" in listed[planted].reason
    assert (listed[here].space, listed[friend].space) == ("project", "user")
    assert listed[friend].not_after == FAR_AHEAD
    assert listed[friend].path == workspace.path(
        f"config/keys/trusted/{friend.fingerprint}.toml", "user"
    )
    assert listed[host].path is None


def test_a_user_without_keys_trusts_none(spaces: Spaces, workspace: Workspace) -> None:
    nobody = Space("user", workspace.root / "nobody/.ai")
    assert TrustStore(Spaces(spaces.project, nobody, ())).listed() == ()


def test_trusted_keys_that_cannot_be_listed_are_an_error_not_none(
    spaces: Spaces, tmp_path: Path
) -> None:
    nobody = Space("user", tmp_path / "nobody/.ai")
    folder = nobody.folder("config") / "keys/trusted"
    folder.parent.mkdir(parents=True)
    folder.symlink_to("trusted")  # a link to itself
    with pytest.raises(SigningError, match="can't be listed"):
        TrustStore(Spaces(spaces.project, nobody, ())).listed()


def test_now_is_utc_in_whole_seconds() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    now = datetime.strptime(utc_now(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert before <= now <= datetime.now(UTC)


def test_an_unsigned_tool_stays_unsigned_whoever_is_trusted(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL, sign=False)
    with pytest.raises(UnsignedItem) as refused:
        verify(spaces, path, stranger.public)
    assert isinstance(refused.value, IntegrityError)
