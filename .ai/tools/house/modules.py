# rye:signed:2026-11-23T06:14:33Z:60eeec677b7401f050ea8cf1f1304f9594b44493d9ba029edfba6cd18d77147a:e31rztyIpvOBVlQSXncMI4mc3xUHAaTKvlsftEhYbAIxmfPI2dRmKLAkzj2nA7ymy8PU2iKLOeZJX8B6EMxRCg:178f8f11b93d6915
"""List the modules that have grown too long to do one thing."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = "List this project's source modules that have more lines than they should."

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
