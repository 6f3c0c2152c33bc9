"""What workloads say of themselves: the independent witness of who used which GPUs when.

Every workload appends its lines to one file with O_APPEND. The file's order is then an order in which things really
happened: a `start` that stands between somebody's `start` and `end` was written while that other process still ran, so
two holders of one GPU show up however short their overlap was, and no clock is asked.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_HEAD = """
say() { echo "$1 $GPU_DEV_JOB_ID ${NODE_RANK:-0} $GPU_DEV_NODE ${CUDA_VISIBLE_DEVICES:-none}" >>"$RECORDS"; }
over() { say end; exit "$1"; }
trap 'over 143' TERM
say start
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: `what` is `start` or `end`; `cards` are (node, index)."""

    what: str
    job: str
    rank: int
    cards: tuple[tuple[str, int], ...]


class Records:
    """The file that the workloads of one test append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def workload(self, exit_code: int = 0, *, work: str = ":", stubborn_s: float = 0) -> dict[str, object]:
        """A workload that says when it starts and ends, does `work` in between, and exits.

        With `stubborn_s` it takes that long to end once it has been asked to.
        """
        head = _HEAD.replace("'over 143'", f"'sleep {stubborn_s}; over 143'") if stubborn_s else _HEAD
        return {"command": ["sh", "-c", f"{head}{work}\nover {exit_code}"], "env": {"RECORDS": str(self.path)}}

    def lines(self) -> list[Line]:
        """Everything said so far."""
        return [_line(text) for text in self.path.read_text().splitlines()]

    def open(self) -> set[tuple[str, int]]:
        """The pods (job, rank) that have started and not said their end."""
        left: set[tuple[str, int]] = set()
        for line in self.lines():
            if line.what == "start":
                left.add((line.job, line.rank))
            else:
                left.discard((line.job, line.rank))
        return left

    def started(self) -> set[str]:
        """The jobs of which some pod has ever started."""
        return {line.job for line in self.lines() if line.what == "start"}

    def doubly_held(self) -> list[str]:
        """Every start on a card whose former holder had not ended: what must never be."""
        holders: dict[tuple[str, int], tuple[str, int]] = {}
        found = []
        for line in self.lines():
            pod = (line.job, line.rank)
            for card in line.cards:
                if line.what == "start":
                    if card in holders:
                        found.append(f"{pod} started on {card} while {holders[card]} was there")
                    holders[card] = pod
                elif holders.get(card) == pod:
                    del holders[card]
        return found

    def started_again(self) -> list[tuple[str, int]]:
        """The pods whose workload ran more than once."""
        starts = Counter((line.job, line.rank) for line in self.lines() if line.what == "start")
        return [pod for pod, count in starts.items() if count > 1]


def _line(text: str) -> Line:
    what, job, rank, node, cards = text.split(" ")
    return Line(what, job, int(rank), tuple((node, int(card)) for card in cards.split(",")))
