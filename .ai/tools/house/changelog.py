# rye:signed:2026-11-28T17:20:56Z:919b8480c29b75bc4358edb00efb3e8d89ecc18c400de48a3b1d1cd2f82ccddc:7A4i67ND6XdzxqNIYkyIo5q28CN5VevispCkn-vL2Cz4aFNzAKnSDH7b-Qg0DKFMCQFCabFsJWMLZ2QozFVHAQ:6d18ae449511288a
"""See that the changelog tells what a version changes, and since when there is that version."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = (
    "What keeps CHANGELOG.md from being a version's: nothing dated, or too much left."
)

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"version": {"type": "string"}},
    "required": ["version"],
    "additionalProperties": False,
}


def execute(params: dict, project_path: str) -> dict:
    """Look at the newest headings and what stands below them."""
    import datetime
    import re
    from pathlib import Path

    version, problems = params["version"], []
    text = Path(project_path, "CHANGELOG.md").read_text()
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    sections = [part.partition("\n")[::2] for part in parts]
    has_unreleased = bool(sections) and sections[0][0].strip() == "[Unreleased]"
    if has_unreleased and sections.pop(0)[1].strip():
        problems.append("Below [Unreleased] stand changes that no version has.")
    if not sections:
        return {"problems": [*problems, f"There is no section for {version}."]}
    heading, body = sections[0]
    found = re.fullmatch(r"\[(\S+)\] - (\d{4}-\d\d-\d\d)", heading.strip())
    if not found:
        problems.append(f"The newest heading is '{heading}', and not '[{version}] - YYYY-MM-DD'.")
        return {"problems": problems}
    if found[1] != version:
        problems.append(f"The newest version is {found[1]}, and not {version}.")
    if not body.strip():
        problems.append(f"Below [{found[1]}] stands nothing.")
    try:
        date = datetime.date.fromisoformat(found[2])
    except ValueError:
        problems.append(f"{found[2]} is no date.")
    else:
        if date > datetime.datetime.now(datetime.UTC).date():
            problems.append(f"{found[2]} is still to come.")
    return {"problems": problems}
