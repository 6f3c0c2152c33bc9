"""This machine's clock, and the time zone that TZ names where the machine does not know it."""

import re
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from pathlib import Path

from gpu_dev.terminal import say

_WITH_OFFSET = re.compile(r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[+-]?\d.*", re.ASCII)
"""POSIX's form of a zone (`CET-1CEST`), which needs no file."""


def local_now() -> datetime:
    """This machine's clock, with an offset; whole seconds."""
    return datetime.now(UTC).replace(microsecond=0).astimezone()  # noqa: TID251 - the client has no clock port


def settle_zone(environ: MutableMapping[str, str]) -> None:
    """Use UTC, and say so, where TZ names no zone: the C library's UTC would bear that name.

    An empty TZ is UTC, too, which some C libraries call Universal.
    """
    typed = environ.get("TZ")
    name = (typed or "").removeprefix(":")
    if typed is None or _WITH_OFFSET.fullmatch(name) or (name and _has_file(name)):
        return
    if name:
        say(f"TZ={typed} names no time zone that this machine knows: times are in UTC.")
    environ["TZ"] = "UTC"
    time.tzset()


def _has_file(name: str) -> bool:
    import zoneinfo  # loaded here: TZ is rarely set

    return any(Path(folder, name).is_file() for folder in zoneinfo.TZPATH)
