"""Chunks on their way."""

from hashlib import sha256
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.sync import frames
from reservation_core.domain.sync.folders import CHUNK_BYTES
from reservation_core.domain.sync.frames import FrameError, framed, packs, read_frames, read_pack


def named(chunk: bytes) -> tuple[bytes, bytes]:
    return sha256(chunk).digest(), chunk


@given(st.lists(st.binary(min_size=1, max_size=50).map(named), max_size=20))
def test_packs_have_all_chunks_in_their_order(chunks: list[tuple[bytes, bytes]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "PACK_BYTES", 100)
        sent = list(packs(chunks))
    assert [frame for pack in sent for frame in read_pack(pack)] == chunks
    assert all(sum(len(chunk) for _, chunk in read_pack(pack)) <= 100 for pack in sent)
    assert list(read_frames(BytesIO(b"".join(sent)).read)) == chunks


GOOD = framed(*named(b"hello"))


@pytest.mark.parametrize(
    "pack",
    [
        GOOD[:10],
        GOOD[:-1],
        GOOD + b"x",
        framed(sha256(b"other").digest(), b"hello"),
        framed(*named(b"")),
        GOOD[:32] + (CHUNK_BYTES + 1).to_bytes(4, "big") + b"x",
        GOOD[:32] + b"\xff\xff\xff\xff",
        GOOD * (frames.MOST_CHUNKS + 1),
    ],
)
def test_what_is_no_pack_is_refused(pack: bytes) -> None:
    with pytest.raises(FrameError):
        read_pack(pack)
