"""`gpu-dev` as a process, and `python -m gpu_dev`."""

import gc
import os

_MANY = 100_000


def start() -> None:
    """Run the command line without searching for garbage, a fifth of a short command's processor time."""
    gc.set_threshold(_MANY)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # searched for in the metadata of all installed packages

    from gpu_dev.main import main

    try:
        main()
    finally:
        gc.freeze()  # Python's end leaves alone what is loaded


if __name__ == "__main__":
    start()
