"""Where jobs and lines stand in the drawing of dependencies."""

import re
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from api_service.web.jobs.graph_layout import BOX_HEIGHT, BOX_WIDTH, GraphLayout, lay_out
from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.domain.jobs.dependency_layers import layers_around
from reservation_core.ports.jobs.dependencies import DependencyLink

JOBS = [f"job-{number}" for number in range(9)]


def laid_out(links: list[DependencyLink]) -> GraphLayout:
    layers = layers_around(JOBS[0], [(link.needed, link.waiting) for link in links])
    return lay_out(layers, [link for link in links if link.needed in layers and link.waiting in layers])


@st.composite
def chains(draw: st.DrawFn) -> list[DependencyLink]:
    """Jobs that wait for the first one, directly or not."""
    whens = st.sampled_from(DependencyWhen)
    links = []
    for place in range(1, draw(st.integers(2, len(JOBS)))):
        needed = draw(st.lists(st.sampled_from(JOBS[:place]), unique=True, min_size=1))
        links += [DependencyLink(job, JOBS[place], draw(whens)) for job in needed]
    return links


@given(chains())
def test_nothing_lies_on_a_job(links: list[DependencyLink]) -> None:
    layout = laid_out(links)
    for x, y in layout.places.values():
        assert 0 <= x <= layout.width - BOX_WIDTH
        assert 0 <= y <= layout.height - BOX_HEIGHT
    for (x, y), (other_x, other_y) in combinations(layout.places.values(), 2):
        assert abs(x - other_x) > BOX_WIDTH or abs(y - other_y) > BOX_HEIGHT
    lanes = [re.fullmatch(rf"M(\d+) (\d+)h{BOX_WIDTH}", line) for line in layout.lines]
    for lane in filter(None, lanes):
        for x, y in layout.places.values():
            assert int(lane[1]) != x or not y <= int(lane[2]) <= y + BOX_HEIGHT
    for link in links:
        ports = [port for port in layout.ports if (port.x, port.when) == (layout.places[link.waiting][0], link.when)]
        y = layout.places[link.waiting][1]
        assert len([port for port in ports if y < port.y < y + BOX_HEIGHT]) == 1, "a word for each condition of a job"
        assert layout.places[link.needed][0] < layout.places[link.waiting][0]


def test_a_chain_is_straight() -> None:
    ok = DependencyWhen.SUCCEEDED
    layout = laid_out([DependencyLink("job-0", "job-1", ok), DependencyLink("job-1", "job-2", ok)])
    assert len({y for _, y in layout.places.values()}) == 1
    assert [line for line in layout.lines if "C" in line] == [
        "M220 44C248 44 248 44 276 44",
        "M556 44C584 44 584 44 612 44",
    ]


def test_the_same_line_serves_all_that_come_later() -> None:
    ok = DependencyWhen.SUCCEEDED
    pairs = [(0, 1), (1, 2), (0, 2), (2, 3), (0, 3)]
    layout = laid_out([DependencyLink(JOBS[needed], JOBS[job], ok) for needed, job in pairs])
    assert len([line for line in layout.lines if line.endswith(f"h{BOX_WIDTH}")]) == 2, "a lane in each layer between"
    assert len(layout.ports) == 3
