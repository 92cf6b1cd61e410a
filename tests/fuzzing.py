"""Documents that are nearly right, for what reads them from the other end of a network."""

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

__all__ = ["anything", "changed"]

_HASH: Final = "0" * 64

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from([_HASH, "../x", "\ud800", 2**70, -1, "completed", "project", 1e308]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["sha256", "path", "version", "_signature", ""]), inner),
    max_leaves=8,
)  # fmt: skip


def changed(data: st.DataObject, document: Any) -> Any:
    """Return a document in which one value, at some depth, is another one or is missing."""
    if isinstance(document, Mapping) and document and data.draw(st.integers(0, 4)):
        name = data.draw(st.sampled_from(sorted(document)))
        rest = {key: value for key, value in document.items() if key != name}
        how = data.draw(st.sampled_from(["left out", "renamed", "within"]))
        if how == "left out":
            return rest
        if how == "renamed":
            return {**rest, data.draw(st.text(max_size=8)): document[name]}
        return {**rest, name: changed(data, document[name])}
    if isinstance(document, list | tuple) and document and data.draw(st.integers(0, 2)):
        return [*document[1:], changed(data, document[0])]
    return data.draw(anything)
