# rye:signed:2026-11-28T17:20:56Z:fb5f9411e4bcb595cc8d4b33cb3c698a8a560c948e5f28f877956db7a30edc4c:YWgENRFQktfHrrT5c8AsDtMgYUaHQFtqfWh2LuFfVaSyJE93IQo7SZfCifm0TFJAqQnNBCIo0laAdm87DPK0DQ:6d18ae449511288a
"""See that what would be released is committed, and that its tag is free."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = "The files that git has not committed, and what is wrong with a tag."

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "version": {"type": "string"},
        "tag": {"type": "string", "description": "The tag to check; none without it."},
    },
    "required": ["version"],
    "additionalProperties": False,
}


def execute(params: dict, project_path: str) -> dict:
    """Ask git."""
    import subprocess

    def git(*arguments: str) -> list[str]:
        asked = ["git", "-C", project_path, *arguments]
        return subprocess.run(
            asked, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()

    problems = [f"Not committed: {line}" for line in git("status", "--porcelain")]
    tag = params.get("tag")
    if tag is not None:
        if tag != f"v{params['version']}":
            problems.append(f"The tag {tag} is not the version's: v{params['version']}.")
        if tag in git("tag", "--list"):
            problems.append(f"The tag {tag} is taken.")
    return {"problems": problems}
