# rye:signed:2026-11-28T17:20:56Z:d06753a15df7e0adc65afad0c2d9df9dbbdcc2f122242dfcc2cdddf5a975bacd:9UESnIeh7CUnbPzfx0YN-geKu0aBG5Xj6OSPcvVvLPzWoh5VjQVP7_ErC97Y6cwl8De_-WrYOgMQNdJN9ohGCg:6d18ae449511288a
"""See that every file that names this project's version names the same one."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = "The version that pyproject.toml names, and the files that name another one."

CONFIG_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


def execute(params: dict, project_path: str) -> dict:
    """Compare what the files say with pyproject.toml."""
    import re
    import tomllib
    from pathlib import Path

    root = Path(project_path)
    wanted = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    said = {}
    workspace = tomllib.loads((root / "native/Cargo.toml").read_text())["workspace"]
    said["native/Cargo.toml"] = workspace["package"]["version"]
    for member in workspace["members"]:
        manifest = f"native/{member}/Cargo.toml"
        version = tomllib.loads((root / manifest).read_text())["package"]["version"]
        if version != {"workspace": True}:
            said[manifest] = version
    package = "src/ryecore/__init__.py"
    named = re.search(r'^__version__ = "(.*)"$', (root / package).read_text(), re.MULTILINE)
    said[package] = named[1] if named else None
    problems = [
        f"{name} says {version}, and pyproject.toml {wanted}."
        for name, version in said.items()
        if version != wanted
    ]
    return {"version": wanted, "problems": problems}
