"""Answers of NVML, which lacks some of them on some GPUs and in some versions."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def answer_of(nvml: Any, call: Callable[[], T]) -> T | None:
    """An answer; None where this GPU or this driver has none. Raises nvml.NVMLError, as for a GPU that is lost."""
    try:
        return call()
    except nvml.NVMLError as problem:
        if problem.value in _not_known(nvml):
            return None
        raise


def _not_known(nvml: Any) -> tuple[int, ...]:
    return (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_NO_PERMISSION)
