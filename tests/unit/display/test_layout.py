"""Boxes never overlap, lines begin and end at their boxes, and a picture always looks the same."""

import time
from itertools import combinations
from random import Random

import pytest
from hypothesis import given

from ryecore.display import Box, Line, Picture
from ryecore.display.layout import lay_out
from tests.unit.display.pictures import chain_of, pictures


def rectangle(placed):
    return placed.x, placed.y, placed.x + placed.sized.width, placed.y + placed.sized.height


def on_border(point, placed):
    """Whether a point is at the border of a box; of a diamond or a pill, within its corners."""
    left, top, right, bottom = rectangle(placed)
    x, y = point
    if not (left - 0.01 <= x <= right + 0.01 and top - 0.01 <= y <= bottom + 0.01):
        return False
    half_width, half_height = (right - left) / 2, (bottom - top) / 2
    across, along = abs(x - left - half_width), abs(y - top - half_height)
    if placed.sized.box.shape == "diamond":
        return abs(across / half_width + along / half_height - 1) < 0.01
    return abs(across - half_width) < 0.01 or abs(along - half_height) < 0.01


@given(pictures())
def test_no_two_boxes_overlap_and_all_are_within_the_picture(picture):
    layout = lay_out(picture)
    places = [rectangle(one) for one in layout.boxes]
    for one, other in combinations(places, 2):
        assert one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]
    for left, top, right, bottom in places:
        assert left >= -0.01
        assert top >= -0.01
        assert right <= layout.width + 0.01
        assert bottom <= layout.height + 0.01


@given(pictures())
def test_every_line_begins_and_ends_at_its_boxes(picture):
    layout = lay_out(picture)
    placed = {one.sized.box.id: one for one in layout.boxes}
    assert [route.line for route in layout.routes] == list(picture.lines)
    for route in layout.routes:
        assert on_border(route.start, placed[route.line.start])
        assert on_border(route.end, placed[route.line.end])


@given(pictures())
def test_labels_of_lines_lie_on_no_box(picture):
    layout = lay_out(picture)
    for route in layout.routes:
        if route.label:
            x, y = route.label_at
            for placed in layout.boxes:
                left, top, right, bottom = rectangle(placed)
                assert not (left < x < right and top < y < bottom)


@given(pictures())
def test_a_picture_always_looks_the_same(picture):
    assert lay_out(picture) == lay_out(picture)


def test_lines_lead_down_and_the_same_to_the_right():
    down = lay_out(chain_of("a", "b", "c"))
    assert [one.y for one in down.boxes] == sorted(one.y for one in down.boxes)
    assert len({one.x for one in down.boxes}) == 1
    assert all(len(step) == 1 for route in down.routes for step in route.steps)  # straight
    picture = chain_of("a", "b", "c")
    right = lay_out(Picture(picture.boxes, picture.lines, direction="right"))
    assert [one.x for one in right.boxes] == sorted(one.x for one in right.boxes)
    assert len({one.y for one in right.boxes}) == 1


def test_what_leads_back_is_drawn_beside_what_leads_there():
    picture = chain_of("ask", "judge", "tell")
    picture = Picture(picture.boxes, (*picture.lines, Line("judge", "ask", "again")))
    layout = lay_out(picture)
    assert [one.y for one in layout.boxes] == sorted(one.y for one in layout.boxes)
    there, _, back = layout.routes
    assert there.start != back.end
    assert back.start[1] > back.end[1]


def test_two_lines_between_the_same_boxes_are_both_to_be_seen():
    boxes = (Box("a", "a"), Box("b", "b"))
    once, twice = lay_out(Picture(boxes, (Line("a", "b"), Line("a", "b")))).routes
    assert once.steps != twice.steps


def test_the_lines_of_a_tree_do_not_cross():
    boxes = tuple(Box(str(at), f"thread {at}") for at in range(40))
    lines = tuple(Line(str((at - 1) // 3), str(at)) for at in range(1, 40))
    layout = lay_out(Picture(boxes, lines, direction="right"))
    for rank in (range(1, 4), range(4, 13), range(13, 40)):
        heights = [layout.boxes[at].y for at in rank]
        assert heights == sorted(heights)  # children in their order, below each other


def random_lines(count, random):
    return tuple(
        Line(str(random.randrange(count)), str(random.randrange(count)), "why")
        for _ in range(2 * count)
    )


@pytest.mark.parametrize("name", ["random", "chain", "star", "skipping"])
@pytest.mark.parametrize(("count", "most_s"), [(200, 0.25), (2000, 2.0)])
def test_a_large_picture_is_laid_out_at_once(name, count, most_s):
    lines = {
        "random": random_lines(count, Random(7)),
        "chain": tuple(Line(str(at), str(at + 1)) for at in range(count - 1)),
        "star": tuple(Line("0", str(at)) for at in range(1, count)),
        "skipping": (
            *(Line(str(at), str(at + 1)) for at in range(count - 1)),
            *(Line("0", str(at)) for at in range(2, count)),
        ),
    }[name]
    picture = Picture(tuple(Box(str(at), f"node {at}") for at in range(count)), lines)
    took_s: list[float] = []
    # What else the machine does takes from one or the other; alone it needs a fifth of that.
    while not took_s or (min(took_s) >= most_s and len(took_s) < 3):
        begun = time.thread_time()
        lay_out(picture)
        took_s.append(time.thread_time() - begun)
    assert min(took_s) < most_s


def test_a_picture_says_what_is_wrong_with_it():
    with pytest.raises(ValueError, match="the same id"):
        Picture((Box("a", "a"), Box("a", "b")), ())
    with pytest.raises(ValueError, match="leads to no box: 'b'"):
        Picture((Box("a", "a"),), (Line("a", "b"),))


def test_nothing_is_laid_out_too():
    layout = lay_out(Picture((), ()))
    assert (layout.width, layout.height) == (0, 0)
