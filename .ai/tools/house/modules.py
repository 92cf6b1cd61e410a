# rye:signed:2026-11-28T17:20:56Z:8efa29a9344caf0963e63838560cff4fc855f17778b233e7e9c45bd341750405:RVkWBzCF-mjzZTP-80p8KSwrtFjnjsJ-95lKl2QnThMWqgWGgVtTzuTkfMZC-wkLcpaYACmPgylUjiCw8BFvBw:6d18ae449511288a
"""List the modules that have grown too long to do one thing."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = "List this project's source modules that are too long."

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "max_lines": {"type": "integer", "minimum": 1, "default": 500},
        "folders": {
            "type": "array",
            "items": {"type": "string"},
            "default": ["src", "native/core/src", "native/py/src", "tests"],
        },
    },
    "additionalProperties": False,
}


def execute(params: dict, project_path: str) -> dict:
    """Count the lines of every Python and Rust module below the folders."""
    import os

    counted = 0
    too_long = []
    for folder in params["folders"]:
        for parent, folders, names in os.walk(os.path.join(project_path, folder)):
            folders[:] = [name for name in folders if name not in ("target", "__pycache__")]
            for name in names:
                if not name.endswith((".py", ".rs", ".pyi")):
                    continue
                path = os.path.join(parent, name)
                with open(path, "rb") as file:
                    lines = sum(1 for _ in file)
                counted += 1
                if lines > params["max_lines"]:
                    relative = os.path.relpath(path, project_path)
                    too_long.append({"path": relative, "lines": lines})
    found = {"success": not too_long, "modules": counted, "too_long": too_long}
    if too_long:
        said = ", ".join(f"{one['path']} has {one['lines']}" for one in too_long)
        found["error"] = f"Modules of more than {params['max_lines']} lines: {said}."
    return found
