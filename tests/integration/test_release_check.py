"""`make release-check`: this repository's own graph says whether it can be released.

It runs in a clone, so what a developer has not committed yet doesn't matter.
"""

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TODAY = datetime.now(UTC).date()
VERSION = "0.1.0"
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
        done = subprocess.run(
            [sys.executable, str(self.root / ".ci/release_check.py"), *tag],
            env={**os.environ, "USER_SPACE": f"{self.root}-user"},
            check=False,
            capture_output=True,
            text=True,
            timeout=100,
        )
        return done.returncode, done.stdout, done.stderr

    def problems(self, *tag: str) -> list[str]:
        """The problems that the report lists."""
        code, printed, errors = self.check(*tag)
        assert (code, errors) == (1, "")
        assert f"ryecore {VERSION} can't be released" in printed or "0.2.0" in printed
        return [line.strip() for line in printed.splitlines() if line.startswith("    ")]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("release") / "ready"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root)], check=True)
    clone = Clone(root)
    clone.edit(
        "CHANGELOG.md", "## [Unreleased]\n", f"## [Unreleased]\n\n## [{VERSION}] - {TODAY}\n"
    )
    clone.commit()
    return root


@pytest.fixture
def clone(ready: Path, tmp_path: Path) -> Clone:
    root = tmp_path / "ryecore"
    subprocess.run(["git", "clone", "--quiet", str(ready), str(root)], check=True)
    return Clone(root)


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
    assert clone.check()[0] == 0, "a check leaves nothing that git sees"


BROKEN = {
    "pyproject.toml names another version": (
        ("pyproject.toml", 'version = "0.1.0"', 'version = "0.2.0"'),
        "native/Cargo.toml says 0.1.0, and pyproject.toml 0.2.0.",
    ),
    "the crates name another version": (
        ("native/Cargo.toml", 'version = "0.1.0"', 'version = "0.1.1"'),
        "native/core/Cargo.toml is 0.1.1, and native/Cargo.lock has 0.1.0.",
    ),
    "the changelog's newest version has no date": (
        ("CHANGELOG.md", f"[{VERSION}] - {TODAY}", f"[{VERSION}]"),
        f"The newest heading is '[{VERSION}]', and not '[{VERSION}] - YYYY-MM-DD'.",
    ),
    "the changelog's date is still to come": (
        ("CHANGELOG.md", str(TODAY), str(TODAY + timedelta(days=2))),
        f"{TODAY + timedelta(days=2)} is still to come.",
    ),
    "something changed after the changelog's newest version": (
        ("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n- More.\n"),
        "Below [Unreleased] stand changes that no version has.",
    ),
    "a module is too long": (
        ("src/ryecore/styled.py", "\n", "\n" * 501),
        r"Modules of more than 500 lines: src/ryecore/styled.py has \d+.",
    ),
    "a file of the system bundle was changed": (
        ("src/ryecore/system/.ai/tools/rye/bash.py", "import", "import "),
        r"src/ryecore/system/.ai/tools/rye/bash.py: it was changed after the key \w+ signed it.*",
    ),
    "a page leads nowhere": (
        ("docs/index.md", "\n", "\n\n[gone](concepts/gone.md)\n"),
        "docs/index.md leads to concepts/gone.md, which isn't there.",
    ),
    "the navigation names a page that isn't there": (
        ("mkdocs.yml", "quickstart.md", "slowstart.md"),
        "mkdocs.yml names slowstart.md, which isn't there.",
    ),
    "a requirement isn't locked": (
        ("requirements-dev.lock", "\nattrs==", "\nattrs-strict=="),
        "requirements-dev.lock lacks attrs: lock it again.",
    ),
    "a requirement is locked below its bound": (
        ("pyproject.toml", "mkdocs-material>=9.5", "mkdocs-material>=999"),
        r"requirements-docs.lock pins mkdocs-material to [\d.]+, not >=999.",
    ),
    "a crate is locked in another version": (
        ("native/core/Cargo.toml", 'sha2 = "0.11"', 'sha2 = "0.12"'),
        r"native/core/Cargo.toml asks for sha2 0.12, and native/Cargo.lock has 0.11[\d.]*.",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_copy_is_found_out(clone: Clone, what: str) -> None:
    edit, expected = BROKEN[what]
    clone.edit(*edit)
    clone.commit()

    problems = clone.problems()

    assert any(re.fullmatch(expected, one) for one in problems), problems


def test_what_is_not_committed_and_a_tag_that_is_wrong_or_taken_are_found_out(clone: Clone) -> None:
    clone.git("tag", f"v{VERSION}")
    clone.write("notes.txt", "still to do\n")
    assert clone.problems(f"v{VERSION}") == [
        "Not committed: ?? notes.txt",
        f"The tag v{VERSION} is taken.",
    ]
    assert f"The tag v9.9.9 is not the version's: v{VERSION}." in clone.problems("v9.9.9")


def test_a_tool_that_nobody_sealed_is_found_out(clone: Clone) -> None:
    clone.write(".ai/tools/house/more.py", "def execute(params, project_path):\n    return {}\n")
    clone.commit()

    (problem,) = clone.problems()

    assert problem == ".ai/tools/house/more.py: it is not signed."


def test_a_check_that_can_not_be_made_is_none_that_went_well(clone: Clone) -> None:
    (clone.root / "mkdocs.yml").unlink()
    clone.commit()

    code, printed, _ = clone.check()

    assert code == 1
    assert printed.startswith("The check 'pages' failed:")
    assert "mkdocs.yml" in printed


def test_checks_that_were_altered_do_not_run(clone: Clone) -> None:
    clone.edit(".ai/tools/house/crates.py", '"problems": problems}', '"problems": []}')
    clone.commit()
    code, printed, _ = clone.check()
    assert (code, "was changed after" in printed) == (1, True)

    clone.edit(".ai/tools/house/release.yaml", "start: versions", "start: ready")
    code, printed, errors = clone.check()
    assert (code, printed) == (2, "")
    assert "release.yaml was changed after" in errors
