"""`python -m benchmarks [NAME ...]`: run all benchmarks but `history`, or those named; print each with its target."""

import argparse
import importlib
import signal
import sys
import time

MODULES = (
    "ledger.submit_throughput",
    "ledger.array_submit",
    "ledger.allocation_throughput",
    "ledger.allocation_latency",
    "ledger.backlog_drain",
    "waiting.planning_pass",
    "waiting.dry_runs",
    "ledger.calendar_reads",
    "ledger.booking_insert",
    "ledger.gpu_samples",
    "start_up",
    "sessions.ssh_first_byte",
    "sessions.session_streams",
    "command_line",
    "sync",
    "kubernetes.kubernetes_binding",
    "kubernetes.webhook_reviews",
    "kubernetes.gpu_scheduler_binds",
    "kubernetes.extender_calls",
    "placement.fragmentation",
    "waits",
    "kubernetes.extender_throughput",
    "browser.pages",
    "browser.pages_calendar",
    "browser.pages_large",
)
BY_NAME_ONLY = ("long_history.history",)
"""Takes a quarter of an hour, most of it to write the history."""

ROOMS = {module.rpartition(".")[2]: module for module in MODULES + BY_NAME_ONLY}


def main(arguments: list[str]) -> int:
    """Run and report; 1 when a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ROOMS))
    names = parser.parse_args(arguments).names or [name for name in ROOMS if ROOMS[name] in MODULES]
    for name in names:
        if name not in ROOMS:
            parser.error(f"there is no benchmark {name}; there are {', '.join(ROOMS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended, too
    missed = 0
    for name in names:
        started = time.monotonic()
        figures = importlib.import_module(f"benchmarks.{ROOMS[name]}").measure()
        for figure in figures:
            print(figure, flush=True)
            missed += not figure.met
        print(f"    ({name} took {time.monotonic() - started:.0f} s)", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
