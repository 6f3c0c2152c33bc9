"""Chunks on their way: each with its SHA-256 and its length before it, so that many go in one request."""

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from struct import Struct
from typing import Final

from reservation_core.domain.sync.folders import CHUNK_BYTES

PACK_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of chunks that are sent in one request."""
MOST_CHUNKS: Final = 4096
"""The most chunks that are sent in one request."""
_HEAD = Struct(">32sI")
HEAD_BYTES: Final = _HEAD.size


class FrameError(ValueError):
    """The bytes are no chunks, or a chunk has another SHA-256 than it says."""


def framed(digest: bytes, chunk: bytes) -> bytes:
    """A chunk with its head."""
    return _HEAD.pack(digest, len(chunk)) + chunk


def read_frames(read: Callable[[int], bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The digests and chunks of a stream, all compared. `read` returns fewer bytes at the end only. Raises FrameError.

    Reading takes no more memory than a chunk.
    """
    while head := read(HEAD_BYTES):
        if len(head) != HEAD_BYTES:
            raise FrameError("The chunks end in the middle of a head.")
        digest, length = _HEAD.unpack(head)
        if not 0 < length <= CHUNK_BYTES:
            raise FrameError(f"A chunk has {length} bytes; 1 to {CHUNK_BYTES} are allowed.")
        chunk = read(length)
        if len(chunk) != length:
            raise FrameError("The chunks end in the middle of one.")
        if sha256(chunk).digest() != digest:
            raise FrameError(f"A chunk does not have the SHA-256 that it is sent with, {digest.hex()}.")
        yield digest, chunk


def read_pack(pack: bytes) -> list[tuple[bytes, bytes]]:
    """The digests and chunks of a pack. Raises FrameError."""
    view, place = memoryview(pack), 0

    def read(length: int) -> bytes:
        nonlocal place
        part = bytes(view[place : place + length])
        place += length
        return part

    found = []
    for frame in read_frames(read):
        found.append(frame)
        if len(found) > MOST_CHUNKS:
            raise FrameError(f"There are more than {MOST_CHUNKS} chunks. Send fewer at once.")
    return found


def packs(chunks: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Chunks in as few requests as may be."""
    parts: list[bytes] = []
    size = 0
    for digest, chunk in chunks:
        if parts and (size + len(chunk) > PACK_BYTES or len(parts) >= MOST_CHUNKS):
            yield b"".join(parts)
            parts, size = [], 0
        parts.append(framed(digest, chunk))
        size += len(chunk)
    if parts:
        yield b"".join(parts)
