"""A local pod's supervisor on a machine whose clock a test sets: `stepped_supervisor.py POD_DIR TOMBSTONE LOG`.

The supervisor runs with `-I -S` and without an environment, so the step is in a file of the installation's home.
"""

import os
import sys
import time

STEP_FILE = "clock-step"
_really = time.time


def stepped() -> float:
    """Return what this machine's clock says."""
    try:
        with open(f"{sys.argv[1]}/../../{STEP_FILE}", encoding="ascii") as file:  # noqa: PTH123
            return _really() + float(file.read())
    except (OSError, ValueError):
        return _really()


if __name__ == "__main__":
    time.time = stepped
    sys.path.append(os.path.abspath(__file__ + "/../../../.."))  # noqa: PTH100
    from reservation_core.adapters.local import supervisor

    supervisor.main()
