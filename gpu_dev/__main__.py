"""`gpu-dev` as a process, and `python -m gpu_dev`."""

import gc
import os
from collections.abc import Callable

_MANY = 100_000
_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


def start() -> None:
    """Run the command line; ends the process."""
    start_quickly(_run_main)


def _run_main() -> None:
    from gpu_dev.main import main

    main()


def start_quickly(program: Callable[[], None]) -> None:
    """Run a program without searching for garbage, a fifth of a short command's processor time."""
    gc.set_threshold(_MANY)
    if _NO_PLUGINS not in os.environ:
        os.environ[_NO_PLUGINS] = "1"  # plugins are searched for in the metadata of all installed packages
        os.unsetenv(_NO_PLUGINS)  # `os.environ` keeps it, and the program that this process becomes inherits none
    try:
        program()
    finally:
        gc.freeze()  # Python's end leaves alone what is loaded


if __name__ == "__main__":
    start()
