"""A temporary project and user space with a key, and short ways to write items into them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ryecore import ExecutionResult, Rye, SigningKey, Space, SyncRye
from ryecore.items.keys import AuthorKeys
from ryecore.items.signature import CommentForm
from ryecore.items.signing import sign_item
from ryecore.items.spaces import built_in_space
from tests.interpreter import PYTHON

SpaceName = Literal["project", "user", "system"]

PRIMITIVE = "rye/core/primitives/execute"
BASH = "rye/core/runtimes/bash/bash"
FUNCTION = "rye/core/runtimes/python/function"
SCRIPT = "rye/core/runtimes/python/script"


class Workspace:
    """A project and a user space in a temporary folder.

    Attributes:
        root: The folder that holds both.
        project: The project's folder.
        user: The folder that holds the user's `.ai`.
        environ: The environment that Ryes of this workspace see; tests may change it.
        keys: The author's keys.
        key: The author's key, trusted in user space.
    """

    def __init__(self, root: Path, *, is_new: bool = True) -> None:
        self.root = root
        self.project, self.user, self._bundle = root / "project", root / "user", root / "bundle"
        self.project.mkdir(exist_ok=not is_new)
        self.environ = {
            "PATH": f"{Path(PYTHON).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.user),
            "LANG": "C.UTF-8",
            "RYE_PYTHON": PYTHON,  # else the interpreter of the test run, with all its packages
        }
        self.keys = AuthorKeys(Space("user", self.user / ".ai"), {})
        self.key = self.keys.generate("the author") if is_new else self.keys.load()

    def path(self, name: str, space: SpaceName = "project") -> Path:
        """Where `name` stands below a space's `.ai`. The system space is a bundle of its own."""
        base = {"project": self.project, "user": self.user, "system": self._bundle}[space]
        return base / ".ai" / name

    def write(
        self,
        name: str,
        content: str | bytes | Mapping[str, object],
        *,
        space: SpaceName = "project",
        sign: bool = True,
        key: SigningKey | None = None,
    ) -> Path:
        """Write a file below a space's `.ai`, and sign it. A mapping is written as JSON."""
        path = self.path(name, space)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Mapping):
            content = json.dumps(content, indent=1)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if sign:
            self.sign(path, key=key)
        return path

    def sign(
        self,
        path: Path,
        *,
        key: SigningKey | None = None,
        file_types: Mapping[str, CommentForm] | None = None,
    ) -> None:
        """Sign a file again, after it was changed."""
        sign_item(path, key or self.key, file_types=file_types)

    def shell(
        self, item_id: str, script: str, *, space: SpaceName = "project", **declared: object
    ) -> str:
        """A shell tool; the keywords are what its header declares."""
        header = {"executor_id": BASH, **declared}
        lines = [f"# __{name}__ = {value!r}" for name, value in header.items()]
        self.write(f"tools/{item_id}.sh", "\n".join([*lines, "", script, ""]), space=space)
        return f"tool:{item_id}"

    def python(
        self, item_id: str, body: str, *, space: SpaceName = "project", **declared: object
    ) -> str:
        """A Python tool; the keywords are what its constants declare."""
        header = {"executor_id": FUNCTION, **declared}
        lines = [f"__{name}__ = {value!r}" for name, value in header.items()]
        self.write(f"tools/{item_id}.py", "\n".join([*lines, "", body, ""]), space=space)
        return f"tool:{item_id}"

    def yaml(self, item_id: str, *, space: SpaceName = "project", **declared: object) -> str:
        """A YAML tool or runtime."""
        header = {"executor_id": PRIMITIVE, **declared}
        self.write(f"tools/{item_id}.yaml", header, space=space)
        return f"tool:{item_id}"

    def open(self, **options: Any) -> Rye:
        """Open a Rye in this workspace."""
        return Rye.open(self.project, **self._options(options))

    def sync(self, **options: Any) -> SyncRye:
        """Open a SyncRye in this workspace."""
        return SyncRye.open(self.project, **self._options(options))

    def execute(
        self,
        ref: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        opened: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> ExecutionResult:
        """Execute in a Rye that is opened for this one call, with the options `opened`."""
        with self.sync(**(opened or {})) as rye:
            return rye.execute(ref, parameters, **options)

    def options(self, **more: Any) -> dict[str, Any]:
        """The options of a Rye of this workspace."""
        return self._options(more)

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        bundles = (built_in_space(),)
        if self._bundle.is_dir():
            bundles += (Space("system", self._bundle / ".ai", "acme"),)
        return {
            "user_space": self.user,
            "environ": self.environ,
            "system_spaces": bundles,
        } | options


def events(trace: Any, step: str) -> list[Mapping[str, Any]]:
    """The events of one step in a trace."""
    return [event for event in trace if event["step"] == step]
