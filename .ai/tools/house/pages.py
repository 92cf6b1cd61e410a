# rye:signed:2026-11-28T17:20:56Z:aa12a1b6d6d9ea33dceb889fe5b8903fd52d6c8d7efb5d5da3d5fb5fdb2f4df9:ZlE8rVIyCi9_bqAPeJEOq58Qzc3QHVPBPPkM8y7gP68pG3ZqJQyZQJAQVjLR3GgWMTEGOnin5M_79rQllzOjCQ:6d18ae449511288a
"""See that no page of the documentation leads to one that isn't there."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = (
    "Links and entries of the navigation that lead nowhere, and pages that none leads to."
)

CONFIG_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


def execute(params: dict, project_path: str) -> dict:
    """Follow the links of every page, and the navigation."""
    import re
    from pathlib import Path

    root, problems = Path(project_path), []
    docs = root / "docs"
    pages = [*sorted(root.glob("*.md")), *sorted(docs.rglob("*.md"))]
    for page in pages:
        prose = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if ":" not in link and not (page.parent / link).exists():
                problems.append(f"{page.relative_to(root)} leads to {link}, which isn't there.")
    navigation = (root / "mkdocs.yml").read_text().partition("\nnav:")[2]
    named = set(re.findall(r":\s*(\S+\.md)\s*$", navigation, re.MULTILINE))
    there = {page.relative_to(docs).as_posix() for page in pages if page.is_relative_to(docs)}
    problems += [f"mkdocs.yml names {one}, which isn't there." for one in sorted(named - there)]
    problems += [f"mkdocs.yml doesn't name docs/{one}." for one in sorted(there - named)]
    return {"pages": len(pages), "problems": problems}
