"""The child process: a question on stdin, the comparison on stdout.

Arguments: the CPU time in seconds and the memory in bytes that it may have. It yields to everything else, and ends
with the process that started it.
"""

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path

from reservation_core.adapters.local.kernel import PR_SET_PDEATHSIG, prctl


def main() -> None:
    """Compute one comparison."""
    cpu_s, memory_bytes = (int(argument) for argument in sys.argv[1:3])
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(10)
    with contextlib.suppress(OSError):
        # Where memory is short after all, this ends and not the server.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # With the limits in place.
    from reservation_core.domain.simulation.comparison import compare  # noqa: PLC0415
    from reservation_core.runtime.simulation.messages import ANSWER, QUESTION  # noqa: PLC0415

    comparison = compare(QUESTION.validate_json(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(ANSWER.dump_json(comparison))


if __name__ == "__main__":
    main()
