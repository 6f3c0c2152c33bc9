"""Slurm's commands as processes: `python -m gpu_dev.slurm sbatch …`, which the installed commands call."""

import importlib
import os
import sys

from gpu_dev.__main__ import start_quickly

PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "sinfo")


def run_program() -> None:
    """Run the command that the first word names; ends the process with an exit code."""
    from gpu_dev.errors import ClientError, ExitCode
    from gpu_dev.inputs.machine_zone import settle_zone
    from gpu_dev.main import report
    from gpu_dev.slurm.saying import RefusedError

    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        sys.exit(f"Name one of {', '.join(PROGRAMS)}.")
    settle_zone(os.environ)
    try:
        sys.exit(importlib.import_module(f"gpu_dev.slurm.{name}").main(sys.argv[2:]))
    except RefusedError:
        sys.exit(ExitCode.USAGE)
    except ClientError as error:
        report(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    start_quickly(run_program)
