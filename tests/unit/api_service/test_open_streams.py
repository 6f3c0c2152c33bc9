"""How many streams somebody may have open."""

import pytest

from api_service.open_streams import OpenStreams
from api_service.problems import ProblemError

ALICE, BOB = 1, 2


def test_nobody_has_more_than_their_share_and_others_have_theirs() -> None:
    streams = OpenStreams(2)
    with streams.place(ALICE):
        with streams.place(ALICE):
            with pytest.raises(ProblemError, match="You have 2 streams open") as refused:
                streams.place(ALICE)
            assert (refused.value.status, refused.value.code) == (429, "too_many_streams")
            assert refused.value.headers == {"Retry-After": "30"}
            with streams.place(BOB):
                pass
        with streams.place(ALICE):
            pass


def test_a_place_that_was_never_used_takes_nothing() -> None:
    streams = OpenStreams(1)
    streams.place(ALICE)
    with streams.place(ALICE), pytest.raises(ProblemError):
        streams.place(ALICE)
    with streams.place(ALICE):
        pass


def test_what_fails_makes_room() -> None:
    streams = OpenStreams(1)
    for _ in range(3):
        with pytest.raises(RuntimeError), streams.place(ALICE):
            raise RuntimeError
