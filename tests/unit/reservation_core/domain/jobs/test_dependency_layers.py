"""The jobs around a job, compared with all ways between them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.jobs.dependency_layers import Edge, layers_around, nearest_jobs

JOBS = [f"job-{number}" for number in range(8)]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, list[Edge]]:
    """Jobs of which each waits for some of those before it, in any order, and one of them."""
    possible = [(needed, job) for place, job in enumerate(JOBS) for needed in JOBS[:place]]
    edges = draw(st.lists(st.sampled_from(possible), unique=True, max_size=len(possible)))
    return draw(st.sampled_from(JOBS)), edges


def ways_from(job: str, edges: list[Edge], *, back: bool) -> list[list[str]]:
    """All ways from a job to what it waits for (`back`), or to what waits for it, each with all jobs on it."""
    ends = [edge[::-1] for edge in edges] if back else edges
    found, turn = [], [[job]]
    while turn:
        turn = [[*way, other] for way in turn for start, other in ends if start == way[-1]]
        found += turn
    return found


@given(graphs())
def test_layers_are_the_longest_ways(graph: tuple[str, list[Edge]]) -> None:
    job, edges = graph
    expected = {job: 0}
    for sign in (-1, 1):
        for way in ways_from(job, edges, back=sign < 0):
            length = sign * (len(way) - 1)
            expected[way[-1]] = max(expected.get(way[-1], 0), length, key=abs)
    layers = layers_around(job, edges)
    assert layers == expected
    for needed, waiting in edges:
        if needed in layers and waiting in layers:
            assert layers[needed] < layers[waiting]


@given(graphs(), st.integers(1, 9))
def test_the_nearest_are_chosen_with_what_leads_to_them(graph: tuple[str, list[Edge]], most: int) -> None:
    job, edges = graph
    sides = []
    for back in (True, False):
        ways = ways_from(job, edges, back=back)
        sides.append({other: min(len(way) - 1 for way in ways if way[-1] == other) for other in {w[-1] for w in ways}})
    chosen = nearest_jobs(job, edges, most)
    assert chosen[0] == job
    assert len(set(chosen)) == len(chosen) == min(most, 1 + len(sides[0]) + len(sides[1]))
    for distances, other_side in (sides, sides[::-1]):
        shown = [distances[other] for other in chosen if other in distances]
        assert shown == sorted(distances.values())[: len(shown)], "the nearest, in order"
        assert len(shown) >= min(len(distances), (most - 1) // 2), "the other side leaves room"
        assert len(shown) <= max((most - 1) // 2, most - 1 - min(len(other_side), (most - 1) // 2))
    kept = [edge for edge in edges if set(edge) <= set(chosen)]
    assert set(layers_around(job, kept)) == set(chosen), "each is reached by what is shown"


def test_a_chain_of_a_thousand() -> None:
    chain = [f"job-{number}" for number in range(1000)]
    edges = list(pairwise(chain))
    chosen = nearest_jobs("job-500", edges, 60)
    assert set(chosen) == set(chain[471:531])
    assert layers_around("job-500", edges)["job-999"] == 499
