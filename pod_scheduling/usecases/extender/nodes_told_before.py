"""Which nodes pods were told alone, one after the other, and have come back from.

What a scheduler does after our answer, volumes for instance, may fail on that very node: who was told the same again
would wait for ever where another would do.
"""

from collections.abc import Iterator, Sequence

_MOST = 10_000


class ToldNodes:
    """By the pod's uid, until it is bound or gone; of no more than so many pods, those that were told last."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._by_uid: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def rounds(self, uid: str, nodes: Sequence[str]) -> Iterator[Sequence[str]]:
        """Among which nodes the best is to be looked for, one after the other, until there is one: those that the pod
        was not told yet; all but the last one; all.

        A question about one node alone is about one that was chosen already: by us for another resource, or in advance.
        """
        told = self._by_uid.get(uid)
        if told is not None and len(nodes) > 1:
            known = frozenset(told)
            if left := tuple(name for name in nodes if name not in known):
                yield left
            if len(told) > 1:
                yield tuple(name for name in nodes if name != told[-1])
        yield nodes

    def put(self, uid: str, node: str) -> None:
        """The pod was told this node. One that it has been told before begins a new round, unless it was the last."""
        told = self._by_uid.pop(uid, [])
        if node not in told:
            told.append(node)
        elif node != told[-1]:
            told = [node]
        self._by_uid[uid] = told
        if len(self._by_uid) > self._most:
            del self._by_uid[next(iter(self._by_uid))]

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._by_uid.pop(uid, None)
