"""Nodes that were suggested alone for a pod, one after the other, and did not work.

A scheduler's next steps, such as volumes, may fail on that very node: a pod that got the same suggestion again would
wait for ever where another node fits.
"""

from collections.abc import Iterator, Sequence

_MOST = 10_000


class SuggestedNodes:
    """Suggested nodes by the pod's uid, until it is bound or gone; of at most `most` pods, the latest."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._by_uid: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def rounds(self, uid: str, nodes: Sequence[str]) -> Iterator[Sequence[str]]:
        """Sets of nodes in which to look for the best, until one fits: nodes that were not suggested yet; all but the
        last suggestion; all.

        A question about one node alone is about one that was chosen already: by us for another resource, or in advance.
        """
        suggested = self._by_uid.get(uid)
        if suggested is not None and len(nodes) > 1:
            known = frozenset(suggested)
            if left := tuple(name for name in nodes if name not in known):
                yield left
            if len(suggested) > 1:
                yield tuple(name for name in nodes if name != suggested[-1])
        yield nodes

    def put(self, uid: str, node: str) -> None:
        """Note a suggestion. A node that was suggested before begins a new round, unless it was the last."""
        suggested = self._by_uid.pop(uid, [])
        if node not in suggested:
            suggested.append(node)
        elif node != suggested[-1]:
            suggested = [node]
        self._by_uid[uid] = suggested
        if len(self._by_uid) > self._most:
            del self._by_uid[next(iter(self._by_uid))]

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self._by_uid.pop(uid, None)
