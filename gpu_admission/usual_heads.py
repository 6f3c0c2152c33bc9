"""The heads of usual questions: a POST of small JSON to a path of the schedulers', with the headers that Go writes.

A scheduler writes the same head again and again; what was read once is known by its bytes. Whatever is not quite of
this form is no usual question, and left to the server's own parser.
"""

import re
from collections.abc import Mapping
from typing import Generic, TypeVar

from gpu_admission.bodies import SMALL_BYTES

_END = b"\r\n\r\n"
_LONGEST = 2048
_REMEMBERED = 1024
_HEAD = re.compile(rb"POST (/[!-~]{1,100}) HTTP/1\.1((?:\r\n[A-Za-z-]{1,40}: [!-~][ -~]{0,400}){1,10})")
_LENGTH = re.compile(rb"[1-9][0-9]{0,8}")
_ALLOWED = frozenset({b"host", b"user-agent", b"accept", b"accept-encoding", b"content-type", b"content-length"})

T = TypeVar("T")


class UsualHeads(Generic[T]):
    """`questions` are by their path."""

    def __init__(self, questions: Mapping[bytes, T]) -> None:
        self._questions = questions
        self._known: dict[bytes, tuple[T, int]] = {}

    def begun_by(self, data: bytes) -> tuple[T, int, int] | None:
        """What the data begins with: the question, where its body begins, and where that ends. None: another thing."""
        ends = data.find(_END, 0, _LONGEST)
        if ends < 0:
            return None
        head = data[:ends]
        known = self._known.get(head)
        if known is None:
            known = self._read(head)
            if known is None:
                return None
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[head] = known
        question, length = known
        begins = ends + len(_END)
        return question, begins, begins + length

    def _read(self, head: bytes) -> tuple[T, int] | None:
        found = _HEAD.fullmatch(head)
        question = None if found is None else self._questions.get(found[1])
        if found is None or question is None:
            return None
        lines = [line.partition(b": ") for line in found[2].split(b"\r\n")[1:]]
        headers = {name.lower(): value for name, _, value in lines}
        length = headers.get(b"content-length", b"")
        usual = (
            len(headers) == len(lines)
            and headers.keys() <= _ALLOWED
            and headers.get(b"content-type") == b"application/json"
            and _LENGTH.fullmatch(length) is not None
            and int(length) <= SMALL_BYTES
        )
        return (question, int(length)) if usual else None
