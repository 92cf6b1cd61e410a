"""What a pruning reports to people."""

import pytest

from ryecore.actions.pruning import PruneReport


@pytest.mark.parametrize(
    ("kept", "said"), [(1, "1 thread stays that may be resumed"), (2, "2 threads stay that may")]
)
def test_threads_that_stay_are_counted_in_a_sentence(kept: int, said: str) -> None:
    assert said in PruneReport(kept_resumable=kept).render().plain()
