"""Cursors say where to go on, and are believed only as far as they can be."""

import base64
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_service.problems import ProblemError
from api_service.requests.pagination import decode, encode

INT64 = st.integers(-(2**63), 2**63 - 1)
NAME = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)


@given(INT64, NAME)
def test_what_was_given_out_comes_back(number: int, name: str) -> None:
    assert decode("gpus", encode("gpus", (name, number)), (str, int)) == (name, number)


def test_no_cursor_is_the_start() -> None:
    assert decode("jobs", None, (int,)) is None


def _made_up(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "=",
        "a",
        "ä",
        "A" * 600,
        _made_up({}),
        _made_up([]),
        _made_up(["jobs"]),
        _made_up(["jobs", "1"]),
        _made_up(["jobs", True]),
        _made_up(["jobs", 1.0]),
        _made_up(["jobs", None]),
        _made_up(["jobs", 2**63]),
        _made_up(["jobs", 1, 2]),
        _made_up(["nodes", 1]),
        encode("gpus", (1,)),
    ],
)
def test_others_are_refused(cursor: str) -> None:
    with pytest.raises(ProblemError) as caught:
        decode("jobs", cursor, (int,))
    assert (caught.value.status, caught.value.code) == (400, "bad_cursor")


def test_names_in_cursors_hold_no_control_characters() -> None:
    with pytest.raises(ProblemError):
        decode("nodes", _made_up(["nodes", "a\x00"]), (str,))


@given(st.text(max_size=80))
def test_nothing_but_a_refusal_comes_of_garbage(cursor: str) -> None:
    with suppress(ProblemError):
        decode("jobs", cursor, (int,))
