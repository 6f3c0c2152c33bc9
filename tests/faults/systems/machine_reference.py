"""How slow the machine itself is, moment by moment: how long a process that does nothing takes to start and end.

`python -m tests.faults.systems.machine_reference FILE` measures until it is ended. A job's start is some such
processes, and a dozen more turns of others: when a do-nothing process takes ten times as long as usual, so does
everything else, and that says nothing about the code.
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

USUAL_S = 0.05
"""What a do-nothing process takes on a machine of two cores that has the test itself to do (idle: 0.02 s)."""

_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class MachineReference:
    """The measurements in `path`, one line each: begin and end, in seconds since the epoch."""

    path: Path

    def slowness(self, since_s: float, until_s: float) -> float:
        """How many times slower than usual the machine was at worst in that time; at least 1."""
        beats = [tuple(map(float, line.split())) for line in self.path.read_text().splitlines()]
        # A machine that stands still measures nothing: the gap to the next measurement counts as well.
        gaps = [(before[1], after[0] - _EVERY_S) for before, after in pairwise(beats)]
        slowest = max(
            (end - begin for begin, end in [*beats, *gaps] if begin <= until_s and end >= since_s), default=0.0
        )
        return max(1.0, slowest / USUAL_S)


def main(path: Path) -> None:
    """Measure until this process is ended."""
    with path.open("a", buffering=1) as file:
        while True:
            begin = time.time()
            subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
            file.write(f"{begin:.3f} {time.time():.3f}\n")
            time.sleep(_EVERY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
