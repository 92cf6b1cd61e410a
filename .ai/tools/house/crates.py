# rye:signed:2026-11-28T17:20:56Z:fdc2249e000c156cd562d964dbf3d67434351f450e6e0da13d8b6cd7145633cd:XXl6hzAm2UEYa5xiA9Zhhzo9fAQrkY99OfmcKIIpCFokn1VT4lSWcr3fof7SJIHXek0_4RnBjkr2cMVBd0I5Dw:6d18ae449511288a
"""See that Cargo.lock fits the manifests of the Rust part."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = (
    "The crates that native/Cargo.lock lacks, or has in a version that doesn't fit."
)

CONFIG_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


def execute(params: dict, project_path: str) -> dict:
    """Compare the manifests with the lock file. Cargo itself would ask for the registry."""
    import tomllib
    from pathlib import Path

    native = Path(project_path, "native")
    workspace = tomllib.loads((native / "Cargo.toml").read_text())["workspace"]
    locked = {}
    for package in tomllib.loads((native / "Cargo.lock").read_text())["package"]:
        locked.setdefault(package["name"], []).append(package["version"])
    problems = []

    def check(name: str, wanted: str, manifest: str) -> None:
        found = locked.get(name, [])
        parts = wanted.split(".")
        if not any(one.split(".")[: len(parts)] == parts or _fits(one, parts) for one in found):
            has = ", ".join(found) or "no such crate"
            problems.append(
                f"{manifest} asks for {name} {wanted}, and native/Cargo.lock has {has}."
            )

    for member in workspace["members"]:
        name = f"native/{member}/Cargo.toml"
        manifest = tomllib.loads((native / member / "Cargo.toml").read_text())
        package = manifest["package"]
        version = package["version"]
        if version == {"workspace": True}:
            version = workspace["package"]["version"]
        if locked.get(package["name"]) != [version]:
            has = ", ".join(locked.get(package["name"], [])) or "no such crate"
            problems.append(f"{name} is {version}, and native/Cargo.lock has {has}.")
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            for crate, declared in manifest.get(kind, {}).items():
                is_shared = isinstance(declared, dict) and declared.get("workspace")
                asked = workspace["dependencies"][crate] if is_shared else declared
                wanted = asked.get("version") if isinstance(asked, dict) else asked
                if wanted is not None:
                    check(crate, wanted, name)
    return {"crates": len(locked), "problems": problems}


def _fits(version: str, wanted: list[str]) -> bool:
    """Whether a version is what Cargo's caret allows: the first part that is not 0 is the same."""
    import re

    found = [int(part) for part in re.split(r"[-+]", version, maxsplit=1)[0].split(".")]
    asked = [int(part) for part in wanted]
    fixed = next((index for index, part in enumerate(asked) if part), len(asked) - 1) + 1
    return found[:fixed] == asked[:fixed] and found >= asked
