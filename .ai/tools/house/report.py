# rye:signed:2026-11-28T17:20:56Z:3ac7393dde9f65e726cc1671a7339a4a8e984dfe5f28552215b1145eb42ec685:ojDkvmTsMcYuZLMbWfe8NMfHhlhnKS3uriNbVMv2aebNjDk2dbO0nZZIp6aIeX9KtuxyD_5MFetqLdlanu_dBg:6d18ae449511288a
"""Say what the checks of a release have found, and fail where that is anything."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = (
    "The findings of a release's checks as a text; it fails where there are problems."
)

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "version": {"type": "string"},
        "findings": {
            "type": "object",
            "description": "By check: what it returned, or a list of that.",
        },
    },
    "required": ["version", "findings"],
    "additionalProperties": False,
}


def execute(params: dict, project_path: str) -> dict:
    """Count the problems, and list them by their check."""
    lines, total = [], 0
    for check, found in params["findings"].items():
        answers = found if isinstance(found, list) else [found]
        problems = [one for answer in answers for one in answer["problems"]]
        total += len(problems)
        lines += [f"{'✗' if problems else '✓'} {check}", *(f"    {one}" for one in problems)]
    if not total:
        said = "\n".join([f"ryecore {params['version']} can be released.", *lines])
        return {"success": True, "report": said}
    what = "a problem" if total == 1 else f"{total} problems"
    said = "\n".join([f"ryecore {params['version']} can't be released: {what}.", *lines])
    return {"success": False, "error": said}
