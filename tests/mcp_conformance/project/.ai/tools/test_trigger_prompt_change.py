"""Takes a prompt away, or puts it back."""

from pathlib import Path

__executor_id__ = "rye/core/runtimes/python/function"


def execute(params, project_path):
    item = Path(project_path) / ".ai" / "directives/comes_and_goes.md"
    spare = item.with_suffix(".off")
    if item.exists():
        item.rename(spare)
    else:
        spare.rename(item)
    return "The list has changed."
