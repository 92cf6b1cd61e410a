# rye:signed:2026-11-22T10:47:43Z:15785dd752251fda516f93ce7291999fa84350c693b14b8ef84c4a1ce11c90c2:pf4soedTgDGZpL4ujxM4X09Ky2zd9Bkp5RDFpK2Hxi5opLxNUFSEnHfad_1x-RjR5huuMXt8uVlwEsAwkh4IDg:95a60536a72eb33f
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
    return {"success": not too_long, "modules": counted, "too_long": too_long}
