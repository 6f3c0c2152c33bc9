"""The jobs around a job: what it waits for, directly or not, and what waits for it. Nothing waits in a circle."""

from collections.abc import Collection, Mapping, Sequence

Edge = tuple[str, str]
"""A job that is waited for, and the job that waits for it, by their ids."""


def nearest_jobs(job: str, edges: Collection[Edge], most: int) -> list[str]:
    """The job and, by their distance, those around it: `most` in all, of both sides alike as far as there are so many.

    A job is here only with one that is nearer on its way to the job.
    """
    before = _by_distance(job, _by_end(edges, 1, 0))
    behind = _by_distance(job, _by_end(edges, 0, 1))
    room = max(0, most - 1)
    of_before = min(len(before), max(room // 2, room - len(behind)))
    return [job, *before[:of_before], *behind[: room - of_before]]


def layers_around(job: str, edges: Collection[Edge]) -> dict[str, int]:
    """The layer of each job around a job, which is in layer 0; what waits has a greater one than what it waits for.

    A layer is the length of the longest way from the job, negative for what the job waits for.
    """
    before = _longest_ways(job, _by_end(edges, 1, 0))
    behind = _longest_ways(job, _by_end(edges, 0, 1))
    return {other: -length for other, length in before.items()} | behind


def _by_end(edges: Collection[Edge], start: int, end: int) -> Mapping[str, Sequence[str]]:
    """The other ends of edges by one end: 0 is what is waited for, 1 what waits."""
    found: dict[str, list[str]] = {}
    for edge in edges:
        found.setdefault(edge[start], []).append(edge[end])
    return found


def _by_distance(job: str, following: Mapping[str, Sequence[str]]) -> list[str]:
    """Those that can be reached from a job, without it, the nearest first."""
    reached = {job: None}
    turn = [job]
    while turn:
        found = dict.fromkeys(other for one in turn for other in following.get(one, ()) if other not in reached)
        reached |= found
        turn = list(found)
    return list(reached)[1:]


def _longest_ways(job: str, following: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The length of the longest way to each job that can be reached from a job."""
    reached = {job, *_by_distance(job, following)}
    ways_in = dict.fromkeys(reached, 0)
    for one in reached:
        for other in following.get(one, ()):
            ways_in[other] += 1
    lengths, turn = {job: 0}, [job]
    while turn:
        one = turn.pop()
        for other in following.get(one, ()):
            lengths[other] = max(lengths.get(other, 0), lengths[one] + 1)
            ways_in[other] -= 1
            if ways_in[other] == 0:
                turn.append(other)
    return lengths
