"""Where the program that gives a job its files is in a pod: beside any image, with a Python of its own."""

from typing import Final

FOLDER_PATH: Final = "/gpu-dev"
"""The folder in which jobs with files work in pods."""
LIBRARIES: Final = "lib"
LOADER: Final = f"{LIBRARIES}/ld.so"
PYTHON: Final = "bin/python"
MODULES: Final = "app"


def python_words(place: str) -> tuple[str, ...]:
    """The words that start the Python below `place` by its own loader, whatever libraries and variables are around.

    The standard library is all that it can import.
    """
    libraries = ("--inhibit-cache", "--library-path", f"{place}/{LIBRARIES}")
    return (f"{place}/{LOADER}", *libraries, f"{place}/{PYTHON}", "-I", "-S", "-X", "utf8")


def program_words(place: str) -> tuple[str, ...]:
    """The words of a command that runs within the program below `place`; the command's own words follow them."""
    return (*python_words(place), f"{place}/{MODULES}/gpu_dev/sync/inside.py")
