"""`python -m gpu_scheduler_check [--interval S]`: says where it runs and which cards it sees, until it is stopped.

Standard library only, so that its image holds nothing else. NODE_NAME comes from the downward API (`spec.nodeName`).
"""

import argparse
import math
import os
import signal
import sys
import threading
from collections.abc import Mapping
from types import FrameType

_LONGEST_INTERVAL_S = 86_400.0


def report(environment: Mapping[str, str]) -> str:
    """The printed report: the node's name, the cards, and a line between two reports.

    A variable that is not there is said to be so: an empty one means that every card is hidden, none that all are seen.
    """
    node = environment.get("NODE_NAME", "not set")
    devices = environment.get("CUDA_VISIBLE_DEVICES", "not set")
    return f"Node Name: {node}\nCUDA_VISIBLE_DEVICES: {devices}\n---\n"


def main(arguments: list[str]) -> int:
    """Print until SIGTERM or SIGINT; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m gpu_scheduler_check",
        description="Prints the node's name (NODE_NAME) and CUDA_VISIBLE_DEVICES, again and again.",
        allow_abbrev=False,
    )
    parser.add_argument("--interval", type=_seconds, default=5.0, metavar="S", help="seconds between two reports (5)")
    interval: float = parser.parse_args(arguments).interval
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not stopped.is_set():
        sys.stdout.write(report(os.environ))
        sys.stdout.flush()
        stopped.wait(interval)
    return 0


def _seconds(text: str) -> float:
    """A pause. Raises ArgumentTypeError for what is none."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _LONGEST_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, at most a day")
    return seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
