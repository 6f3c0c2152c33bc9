"""`python -m benchmarks [NAME ...]`: run all benchmarks but `history`, or those named; print each with its target."""

import argparse
import importlib
import signal
import sys
import time

NAMES = (
    "submit_throughput",
    "array_submit",
    "allocation_throughput",
    "allocation_latency",
    "backlog_drain",
    "planning_pass",
    "dry_runs",
    "calendar_reads",
    "booking_insert",
    "gpu_samples",
    "start_up",
    "ssh_first_byte",
    "session_streams",
    "command_line",
    "sync",
    "kubernetes_binding",
    "webhook_reviews",
    "gpu_scheduler_binds",
    "extender_calls",
    "fragmentation",
    "waits",
    "extender_throughput",
    "pages",
    "pages_calendar",
    "pages_large",
)
BY_NAME_ONLY = ("history",)
"""Takes a quarter of an hour, most of it to write the history."""


def main(arguments: list[str]) -> int:
    """Run and report; 1 when a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES + BY_NAME_ONLY))
    names = parser.parse_args(arguments).names or NAMES
    for name in names:
        if name not in NAMES + BY_NAME_ONLY:
            parser.error(f"there is no benchmark {name}; there are {', '.join(NAMES + BY_NAME_ONLY)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended, too
    missed = 0
    for name in names:
        started = time.monotonic()
        figures = importlib.import_module(f"benchmarks.{name}").measure()
        for figure in figures:
            print(figure, flush=True)
            missed += not figure.met
        print(f"    ({name} took {time.monotonic() - started:.0f} s)", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
