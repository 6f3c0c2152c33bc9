"""Request headers from the connection's list, at a fraction of the cost of the framework's mapping."""

from collections.abc import Mapping
from typing import Any


def values(scope: Mapping[str, Any], name: bytes) -> list[str]:
    """Every value of a header; `name` in lower case."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def takes_gzip(scope: Mapping[str, Any]) -> bool:
    """Whether an answer may be compressed (RFC 9110, 12.5.3): `gzip` is named, and its weight is not zero."""
    for word in ",".join(values(scope, b"accept-encoding")).split(","):
        coding, _, weight = word.partition(";")
        if coding.strip().lower() == "gzip":
            return weight.strip().lower().rstrip("0") not in ("q=", "q=0.")
    return False


def first(scope: Mapping[str, Any], name: bytes, default: str | None = None) -> str | None:
    """The first value of a header; `name` in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return default
