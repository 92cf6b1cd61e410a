"""Ranks the pages of the search; mkdocs.yml loads this.

Who searches wants to do something: decisions and the design stand below the pages that say how.
"""

from typing import Any

_BOOSTS = {"adr/": 0.2, "design/": 0.2, "reference/": 0.7, "troubleshooting": 2, "glossary": 1.5}


def on_page_markdown(markdown: str, *, page: Any, **_kwargs: Any) -> str:
    """Give a page its weight in the search."""
    for beginning, boost in _BOOSTS.items():
        if page.file.src_uri.startswith(beginning):
            page.meta.setdefault("search", {"boost": boost})
    return markdown
