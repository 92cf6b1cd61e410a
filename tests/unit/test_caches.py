"""A dictionary that forgets its oldest entries."""

import threading

from ryecore.caches import BoundedDict


def test_the_entry_that_was_added_first_goes() -> None:
    found: BoundedDict[int, str] = BoundedDict(2)
    for number in (1, 2, 1, 3):
        found[number] = "x"
    assert list(found) == [2, 3]


def test_threads_may_add_at_the_same_time() -> None:
    found: BoundedDict[tuple[int, int], int] = BoundedDict(10)
    problems: list[BaseException] = []

    def add(thread: int) -> None:
        try:
            for number in range(5_000):
                found[thread, number] = number
                found.get((thread, number))
                found.pop((thread, number - 3), None)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not problems
    assert len(found) <= 10
