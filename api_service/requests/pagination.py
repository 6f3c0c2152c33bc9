"""Cursors: the place where a list continues, as an opaque word.

A cursor names a place in an order (a key), not a page number, so entries that come and go meanwhile neither hide nor
repeat others. It is base64url of a small JSON list that begins with the list's name: a cursor of one list is refused
by another.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from api_service.problems import ProblemError
from reservation_core.domain.calendar import to_moment

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
_MAX_CURSOR = 512
_CURSOR = re.compile(r"[A-Za-z0-9_-]{1,512}")
_INT64 = 2**63
_LATEST = 253_402_300_799_000_000
"""The last second of the year 9999, in microseconds: no place lies beyond."""

Key = tuple[int | str, ...]


class PageQuery(BaseModel):
    """The parameters of every list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="How many entries at most.")] = DEFAULT_LIMIT
    cursor: Annotated[
        str | None, Field(max_length=_MAX_CURSOR, description="`next_cursor` of the page before; leave out to begin.")
    ] = None


def encode(name: str, key: Key) -> str:
    """The cursor that continues after `key` in the list called `name`."""
    return base64.urlsafe_b64encode(json.dumps([name, *key], separators=(",", ":")).encode()).rstrip(b"=").decode()


def decode(name: str, cursor: str | None, kinds: Sequence[type[int] | type[str]]) -> Key | None:
    """The key in a cursor, with parts of exactly these kinds; None for no cursor.

    Raises ProblemError (400) for anything that `encode` did not make for this list.
    """
    if cursor is None:
        return None
    if not _CURSOR.fullmatch(cursor):
        raise _bad()
    try:
        decoded = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _bad() from error
    if not isinstance(decoded, list) or len(decoded) != len(kinds) + 1 or decoded[0] != name:
        raise _bad()
    key: Key = tuple(decoded[1:])
    for part, kind in zip(key, kinds, strict=True):
        if type(part) is not kind:
            raise _bad()
        if isinstance(part, int) and not -_INT64 <= part < _INT64:
            raise _bad()
        if isinstance(part, str) and ("\x00" in part or not part.isprintable()):
            raise _bad()
    return key


def moment_of(part: int | str) -> datetime:
    """The time in a key, in microseconds; whatever a client makes of it, it is a time."""
    return to_moment(min(max(int(part), 0), _LATEST))


def _bad() -> ProblemError:
    return ProblemError(
        400, "bad_cursor", "`cursor` is not one that this list gave out. Leave it out to begin at the start."
    )
