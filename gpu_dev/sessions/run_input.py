"""The stdin of `gpu-dev run` for its job, where that is a pipe or a file.

The job's command reads a named pipe that a second program in the job fills: so the output stays in the log, and the
exit code is the job's. On several nodes rank 0 reads, as with srun's `--input=0`.
"""

import os
import select
import stat
import sys

from msgspec.structs import replace

from gpu_dev.wire.jobs import JobSubmit

PLACE = 'd="${TMPDIR:-/tmp}/gpu-dev-stdin-$GPU_DEV_JOB_ID"; '
_READ = (
    '[ "${NODE_RANK:-0}" = 0 ] || exec "$@" </dev/null; '
    f'{PLACE}rm -rf "$d"; (umask 077 && mkdir "$d" && mkfifo "$d/in") && exec "$@" <"$d/in"'
)
_NAME = "gpu-dev-stdin"


def has_input() -> bool:
    """Whether stdin is a pipe or a file with something in it or still to come."""
    try:
        descriptor = sys.stdin.fileno()
        found = os.fstat(descriptor)
    except (OSError, ValueError):
        return False
    if stat.S_ISREG(found.st_mode):
        return os.lseek(descriptor, 0, os.SEEK_CUR) < found.st_size
    if not (stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)):
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return not any(events & select.POLLHUP and not events & select.POLLIN for _, events in poll.poll(0))


def reading_input(request: JobSubmit) -> JobSubmit:
    """The request, whose command reads what `input_feed` sends."""
    command = ["sh", "-c", _READ, _NAME, *(request.workload.command or ())]
    return replace(request, workload=replace(request.workload, command=command))
