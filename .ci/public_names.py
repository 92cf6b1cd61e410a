"""Show the names that `lazy_names` makes public in the reference pages; mkdocs.yml loads this."""

from typing import Any

import griffe


class PublicNames(griffe.Extension):
    """Export the imports for type checkers of each module with lazy names, as `__all__` would."""

    def on_module(self, *, mod: griffe.Module, **_kwargs: Any) -> None:
        """Set what a module exports, once its members are known."""
        if "lazy_names" in mod.members:
            imports = (member for member in mod.members.values() if member.is_alias)
            mod.exports = [member.name for member in imports if not member.runtime]
