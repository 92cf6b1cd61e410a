"""`make release-check`: this repository's own graph says whether it can be released.

It runs in a clone, so what a developer has not committed yet doesn't matter.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ryecore import SyncRye
from tests.forking import Forked

ROOT = Path(__file__).parents[2]
TODAY = datetime.now(UTC).date()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None,
    reason="this is no git checkout, or git is not installed: there is nothing to release",
)


class Clone:
    """A clone of this repository whose changelog is ready for a release."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *arguments: str) -> None:
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "gc.auto=0"]
        subprocess.run(["git", "-C", str(self.root), *who, *arguments], check=True)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text()
        assert old in text, f"{name} holds no {old!r}"
        path.write_text(text.replace(old, new, 1))

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "A change")

    def check(self, *tag: str) -> tuple[int, str, str]:
        """The exit code, what is printed, and what is said of failures."""
        with Forked(
            [str(self.root / ".ci/release_check.py"), *tag],
            env={**os.environ, "USER_SPACE": f"{self.root}-user"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as running:
            printed, errors = running.communicate(timeout=100)
        return running.returncode, printed.decode(), errors.decode()

    def problems(self, *tag: str) -> list[str]:
        """The problems that the report lists."""
        code, printed, errors = self.check(*tag)
        assert (code, errors) == (1, "")
        assert re.match(r"ryecore [\d.]+ can't be released: (a|\d+) problems?\.\n", printed)
        return [line.strip() for line in printed.splitlines() if line.startswith("    ")]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone that can be released, with a branch where it is."""
    root = tmp_path_factory.mktemp("release") / "ready"
    options = ["--quiet", "--no-tags", "--shared"]
    subprocess.run(["git", "clone", *options, str(ROOT), str(root)], check=True)
    clone = Clone(root)
    changes = f"# Changelog\n\n## [Unreleased]\n\n## [{VERSION}] - {TODAY}\n\n- All of it.\n"
    clone.write("CHANGELOG.md", changes)
    clone.commit()
    clone.git("branch", "ready")
    return clone


@pytest.fixture
def clone(ready: Clone) -> Clone:
    """The clone, as it was when it could be released."""
    ready.git("reset", "--quiet", "--hard", "ready")
    ready.git("clean", "--quiet", "--force", "-dx")
    (ready.root / f".git/refs/tags/v{VERSION}").unlink(missing_ok=True)
    shutil.rmtree(f"{ready.root}-user", ignore_errors=True)
    return ready


def test_a_repository_that_is_ready_can_be_released_and_the_report_names_each_check(
    clone: Clone,
) -> None:
    code, printed, errors = clone.check(f"v{VERSION}")

    assert (code, errors) == (0, "")
    assert printed.splitlines() == [
        f"ryecore {VERSION} can be released.",
        "✓ versions",
        "✓ changelog",
        "✓ modules",
        "✓ sealed files",
        "✓ git tree",
        "✓ pages",
        "✓ locked requirements",
        "✓ locked crates",
    ]
    status = subprocess.run(
        ["git", "-C", str(clone.root), "status", "--porcelain"], check=True, capture_output=True
    )
    assert status.stdout == b"", "a check leaves nothing that git sees"


def test_all_that_is_wrong_with_a_copy_is_found_at_once(clone: Clone) -> None:
    clone.edit("pyproject.toml", f'version = "{VERSION}"', 'version = "99.0.0"')
    clone.edit("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n- More.\n")
    clone.edit("src/ryecore/caches.py", "\n", "\n" * 501)
    clone.edit("src/ryecore/system/.ai/tools/rye/bash.py", "import", "import ")
    clone.write(".ai/tools/house/more.py", "def execute(params, project_path):\n    return {}\n")
    clone.edit("docs/index.md", "\n", "\n\n[gone](concepts/gone.md)\n")
    clone.edit("mkdocs.yml", "quickstart.md", "slowstart.md")
    clone.edit("requirements-dev.lock", "\nattrs==", "\nattrs-strict==")
    clone.edit("pyproject.toml", "mkdocs-material>=9.5", "mkdocs-material>=999")
    clone.edit("native/core/Cargo.toml", 'sha2 = "0.11"', 'sha2 = "0.12"')
    clone.commit()
    expected = [
        f"native/Cargo.toml says {VERSION}, and pyproject.toml 99.0.0.",
        f"src/ryecore/__init__.py says {VERSION}, and pyproject.toml 99.0.0.",
        "Below [Unreleased] stand changes that no version has.",
        f"The newest version is {VERSION}, and not 99.0.0.",
        r"Modules of more than 500 lines: src/ryecore/caches.py has \d+.",
        ".ai/tools/house/more.py: it is not signed.",
        r"src/ryecore/system/.ai/tools/rye/bash.py: it was changed after the key \w+ signed it.*",
        "docs/index.md leads to concepts/gone.md, which isn't there.",
        "mkdocs.yml names slowstart.md, which isn't there.",
        "mkdocs.yml doesn't name docs/quickstart.md.",
        "requirements-dev.lock lacks attrs: lock it again.",
        r"requirements-docs.lock pins mkdocs-material to [\d.]+, not >=999.",
        r"native/core/Cargo.toml asks for sha2 0.12, and native/Cargo.lock has 0.11[\d.]*.",
    ]

    problems = clone.problems()

    assert len(problems) == len(expected), problems
    for wanted, found in zip(expected, problems, strict=True):
        assert found == wanted or re.fullmatch(wanted, found), found


LATER = TODAY + timedelta(days=2)
HEADINGS = {
    f"## [{VERSION}]\n\n- One.\n": [
        f"The newest heading is '[{VERSION}]', and not '[{VERSION}] - YYYY-MM-DD'."
    ],
    f"## [{VERSION}] - {LATER}\n\n- One.\n": [f"{LATER} is still to come."],
    f"## [{VERSION}] - 2026-02-30\n\n- One.\n": ["2026-02-30 is no date."],
    f"## [Unreleased]\n\n## [{VERSION}] - {TODAY}\n": [f"Below [{VERSION}] stands nothing."],
    "## [Unreleased]\n": [f"There is no section for {VERSION}."],
    "": [f"There is no section for {VERSION}."],
    f"## [{VERSION}] - {TODAY}\n\n- One.\n": [],
}


@pytest.fixture
def rye(clone: Clone, tmp_path: Path) -> Iterator[SyncRye]:
    """The clone, opened by who trusts the key that sealed it."""
    (key,) = (clone.root / ".ai/config/keys/trusted").glob("*.toml")
    pem = tomllib.loads(key.read_text())["public_key"]["pem"]
    environ = {**os.environ, "RYE_PYTHON": sys.executable}
    options = {"user_space": tmp_path / "user", "trusted_keys": [pem], "environ": environ}
    with SyncRye.open(clone.root, **options) as opened:
        yield opened


def test_each_check_runs_by_itself(clone: Clone, rye: SyncRye) -> None:
    for heading, problems in HEADINGS.items():
        clone.write("CHANGELOG.md", f"# Changelog\n\n{heading}")
        done = rye.execute("tool:house/changelog", {"version": VERSION})
        assert done.data["problems"] == problems, heading
    clone.edit("native/Cargo.toml", f'version = "{VERSION}"', 'version = "99.0.0"')
    assert rye.execute("tool:house/crates").data["problems"] == [
        f"native/{name}/Cargo.toml is 99.0.0, and native/Cargo.lock has {VERSION}."
        for name in ("core", "py")
    ]


def test_what_is_not_committed_and_a_tag_that_is_wrong_or_taken_are_found_out(
    clone: Clone, rye: SyncRye
) -> None:
    clone.git("tag", f"v{VERSION}")
    clone.write("notes.txt", "still to do\n")
    for tag, problem in {
        f"v{VERSION}": f"The tag v{VERSION} is taken.",
        "v9.9.9": f"The tag v9.9.9 is not the version's: v{VERSION}.",
    }.items():
        done = rye.execute("tool:house/tree", {"version": VERSION, "tag": tag})
        assert done.data["problems"] == ["Not committed: ?? notes.txt", problem]


def test_a_check_that_can_not_be_made_is_none_that_went_well(clone: Clone) -> None:
    (clone.root / "CHANGELOG.md").unlink()

    code, printed, _ = clone.check()

    assert code == 1
    assert printed.startswith("The check 'changelog' failed:")
    assert "CHANGELOG.md" in printed


def test_checks_that_were_altered_do_not_run(clone: Clone) -> None:
    clone.edit(".ai/tools/house/versions.py", '"problems": problems}', '"problems": []}')
    code, printed, _ = clone.check()
    assert (code, "was changed after" in printed) == (1, True)

    clone.edit(".ai/tools/house/release.yaml", "start: versions", "start: ready")
    code, printed, errors = clone.check()
    assert (code, printed) == (2, "")
    assert "release.yaml was changed after" in errors


def test_a_checkout_that_is_sealed_with_two_keys_is_told_so(clone: Clone) -> None:
    clone.write(".ai/config/keys/trusted/0000000000000000.toml", "")
    code, printed, errors = clone.check()
    assert (code, printed) == (2, "")
    assert "sealed with 2 keys" in errors
    assert "make seal" in errors
    assert "Traceback" not in errors
