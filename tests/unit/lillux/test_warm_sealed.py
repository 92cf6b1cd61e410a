"""A template serves a call only if the sealed files that it has read are those verified."""

import time
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.lillux import ProcessSpec, WarmPool, run_process_sync
from ryecore.lillux.digests import TreeFilter, sha256_file, stat_tree
from ryecore.lillux.witness import TreeStat, Witness

from .warm import (
    FORK_POINT,
    first_warm,
    python,
)

pytestmark = pytest.mark.anyio

ECHO = "import sys; sys.stdout.write(sys.stdin.read())"

_COARSE_NS = 10_000_000
"""How much older than a launch a file must be, to count as older."""
TOO_LATE = "something that it has read is younger than it"
CHANGED = "the sealed copy that it has read was changed"


def wait_for_file_clock(folder: Path) -> None:
    """Wait until all in a folder is older than what starts now, as far as coarse times can tell."""
    newest_ns = max(one.lstat().st_ctime_ns for one in (folder, *folder.rglob("*")))
    probe = folder.parent / "clock"
    probe.touch()
    while probe.stat().st_ctime_ns <= newest_ns + _COARSE_NS:
        probe.touch()


def sealed_folder(folder: Path) -> tuple[Path, dict[str, str], TreeStat]:
    """A folder that was sealed long enough ago; its digests and stats as they are now."""
    (folder / "inner").mkdir(parents=True)
    for name in ("tool", "inner/helper"):
        (folder / name).write_text(f"the verified {name}")
    wait_for_file_clock(folder)
    everything = TreeFilter()
    digests = {name: sha256_file(folder / name) for name in ("tool", "inner/helper")}
    return folder, digests, TreeStat(str(folder), everything, stat_tree(folder, everything))


@pytest.mark.parametrize(
    ("in_template", "reason"),
    [
        ("", ""),
        ("open({tool!r}, 'a').write('x')", TOO_LATE),
        ("open({tool!r}, 'a').close(); os.utime({tool!r}, ns=(1, 1))", TOO_LATE),
        ("t = open({tool!r}).read(); open({tool!r}, 'w').write(t)", TOO_LATE),
        (
            "os.rename({folder!r}, {folder!r} + '2'); os.rename({folder!r} + '2', {folder!r})",
            TOO_LATE,
        ),
        ("open({folder!r} + '/inner/planted', 'w').close()", TOO_LATE),
        ("open({folder!r} + '/p', 'w'); os.unlink({folder!r} + '/p')", TOO_LATE),
        ("os.unlink({tool!r})", TOO_LATE),
    ],
)
def test_a_template_serves_nothing_if_its_sealed_files_change_until_it_is_ready(
    pool: WarmPool, tmp_path: Path, in_template: str, reason: str
) -> None:
    folder, digests, stat = sealed_folder(tmp_path / "sealed")
    sealed = Witness([(folder / name, digest) for name, digest in digests.items()], (), [stat])
    told = in_template.format(folder=str(folder), tool=str(folder / "tool"))
    text = f"import os; {told or 'pass'}\n{FORK_POINT}\n{ECHO}"
    spec = python(pool, ECHO, template=text, sealed=sealed)
    assert decided(spec) == reason


@pytest.mark.parametrize("which", ["tool", "inner/helper", "fingerprint", "planted", "taken"])
def test_nor_where_they_were_not_as_they_were_verified_when_it_was_started(
    pool: WarmPool, tmp_path: Path, which: str
) -> None:
    folder, digests, stat = sealed_folder(tmp_path / "sealed")
    if which in digests:  # its times say nothing of it
        digests[which] = "0" * 64
    elif which == "planted":
        (folder / which).write_text("")
    elif which == "taken":
        (folder / "tool").unlink()
    else:
        stat = evolve(stat, fingerprint="0" * 64)
    wait_for_file_clock(folder)
    sealed = Witness([(folder / name, digest) for name, digest in digests.items()], (), [stat])
    assert decided(python(pool, ECHO, sealed=sealed)) == CHANGED


def test_a_copy_that_is_sealed_anew_has_another_template(pool: WarmPool, tmp_path: Path) -> None:
    folder, digests, stat = sealed_folder(tmp_path / "sealed")
    files = [(folder / name, digest) for name, digest in digests.items()]
    first_warm(python(pool, ECHO, sealed=Witness(files, (), [stat])))
    # Another look at the same copy finds the same template.
    assert run_process_sync(python(pool, ECHO, sealed=Witness(files, (), [stat]))).why_cold is None
    other = evolve(stat, fingerprint="0" * 64)
    cold = run_process_sync(python(pool, ECHO, sealed=Witness(files, (), [other])))
    assert "second call" in str(cold.why_cold)


def decided(spec: ProcessSpec) -> str:
    """Call it until its template serves, or is given up; the reason for that."""
    assert spec.warm is not None
    end = time.monotonic() + 60
    while time.monotonic() < end:
        result = run_process_sync(spec)
        assert result.stdout == b"input"
        found = [one for one in spec.warm.pool.stats() if one.state != "starting"]
        if result.warm or (found and found[0].state == "failed"):
            return found[0].reason
    raise AssertionError("nothing was decided")
