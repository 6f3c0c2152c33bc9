"""Builds the library, puts it in NVML's place, and sets what it answers."""

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest


def build(folder: Path, *flags: str) -> Path:
    """Build the library. `-DHEALTH` adds ECC errors, clocks and throttling, `-DMIG` instances, `-DGPM` counters."""
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml.c")
    subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", *flags, "-o", library, source], check=True)
    return library


@contextmanager
def in_place(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Driver"]:
    """Let the binding use a library, which nobody else has loaded; nothing hangs any more at the end."""
    loaded = ctypes.CDLL(str(library))
    monkeypatch.setattr(pynvml, "nvmlLib", loaded)
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    driver = Driver(loaded)
    yield driver
    driver.hang(0, 0)
    driver.hang(1, 0)
    driver.set("driver_hangs", 0)


class Driver:
    """Variables of the library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self._library, name).value = value

    def get(self, name: str) -> int:
        return ctypes.c_int.in_dll(self._library, name).value

    def put(self, name: str, gpu: int, value: int) -> None:
        (ctypes.c_int * 2).in_dll(self._library, name)[gpu] = value

    def put_instance(self, name: str, place: int, value: int) -> None:
        """Set a variable of the instances at a place, 0 or 2."""
        (ctypes.c_int * 3).in_dll(self._library, name)[place] = value

    def hang(self, gpu: int, value: int = 1) -> None:
        self.put("hangs", gpu, value)
