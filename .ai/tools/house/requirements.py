# rye:signed:2026-11-28T17:20:56Z:f0ee9b7d0c4f62f8e2afe1d4cb343f04fc1b972858290396099163fb72c90f6b:LRh8kiu2lAROg5tzqI_9rHeOn0JUtYszanelwLUEtePxHWdT7ZvOej0cbdTQTxzkheQpQOs7kyTrmKFAG99ZBg:6d18ae449511288a
"""See that a file of pinned requirements fits what pyproject.toml asks for."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = (
    "The requirements of an extra that its lock file lacks, or pins to what doesn't fit."
)

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "lock": {"type": "string", "description": "The lock file."},
        "extra": {"type": "string", "description": "The extra whose requirements it pins."},
    },
    "required": ["lock", "extra"],
    "additionalProperties": False,
}


def execute(params: dict, project_path: str) -> dict:
    """Compare each requirement, those of the extras that it names included, with its pin."""
    import tomllib
    from pathlib import Path

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    root, lock = Path(project_path), params["lock"]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pinned = {}
    for line in (root / lock).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            one = Requirement(line)
            (pin,) = one.specifier
            pinned.setdefault(canonicalize_name(one.name), []).append(pin.version)
    left, wanted, seen = [params["extra"]], list(project["dependencies"]), set()
    while left:
        extra = left.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for text in extras[extra]:
            one = Requirement(text)
            if canonicalize_name(one.name) == canonicalize_name(project["name"]):
                left += one.extras
            else:
                wanted.append(text)
    problems = []
    for one in map(Requirement, wanted):
        versions = pinned.get(canonicalize_name(one.name))
        if versions is None:
            problems.append(f"{lock} lacks {one.name}: lock it again.")
        elif not all(one.specifier.contains(version, prereleases=True) for version in versions):
            problems.append(
                f"{lock} pins {one.name} to {', '.join(versions)}, not {one.specifier}."
            )
    return {"lock": lock, "pinned": len(pinned), "problems": problems}
