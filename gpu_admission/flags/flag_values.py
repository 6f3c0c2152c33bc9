"""What values of options may be, in Go's words and klog's. Each raises ValueError with what is wanted instead."""

import re
from typing import Literal

Severity = Literal["INFO", "WARNING", "ERROR", "FATAL"]

_SEVERITIES: tuple[Severity, ...] = ("INFO", "WARNING", "ERROR", "FATAL")
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_LEVEL = re.compile(r"[+-]?[0-9]{1,9}")
_DURATION = re.compile(r"[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")
_TRACE = re.compile(r"[^:]*:[0-9]{1,9}")
_MODULES = re.compile(r"([^=,]+=[0-9]{1,9}(,|$))*")


def switch(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return text in _TRUE


def level(text: str) -> int:
    """How much is logged."""
    if _LEVEL.fullmatch(text) is None:
        raise ValueError("a whole number, such as 4")
    return int(text)


def severity(text: str) -> Severity:
    """How bad a line of the log is."""
    if text.isascii() and text.isdigit() and int(text[:4]) < len(_SEVERITIES):
        return _SEVERITIES[int(text)]
    for known in _SEVERITIES:
        if text.upper() == known:
            return known
    raise ValueError("one of INFO, WARNING, ERROR, FATAL, or 0 to 3")


def duration(text: str) -> str:
    """A length of time as Go writes it."""
    if _DURATION.fullmatch(text) is None:
        raise ValueError("a length of time such as 5s or 1m30s")
    return text


def trace_location(text: str) -> str:
    """A line of a file, or none."""
    if text and _TRACE.fullmatch(text) is None:
        raise ValueError("FILE:LINE")
    return text


def modules(text: str) -> str:
    if _MODULES.fullmatch(text) is None:
        raise ValueError("a list such as PATTERN=4,PATTERN=2")
    return text


def version(text: str) -> bool:
    """Whether the version is asked for."""
    if text == "raw":
        return True
    try:
        return switch(text)
    except ValueError:
        raise ValueError("true, false or raw") from None
