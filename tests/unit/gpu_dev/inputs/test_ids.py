"""Ids and their beginnings."""

from collections.abc import Iterator

import pytest

from gpu_dev.errors import AmbiguousIdError, ExitCode, NoSuchObjectError
from gpu_dev.inputs.ids import SEARCHED, read_otherwise, resolve_id

KNOWN = ["job-7f3k9q2m", "job-7f3zzzzz", "job-0abcdefg"]


def nobody_may_ask() -> Iterator[str]:
    raise AssertionError("a whole id needs no list")
    yield ""


@pytest.mark.parametrize("typed", ["job-7f3k", "7f3k", "7F3K", "JOB-7f3k9q2"])
def test_a_unique_beginning_is_enough(typed: str) -> None:
    assert resolve_id(typed, KNOWN) == "job-7f3k9q2m"


@pytest.mark.parametrize("typed", ["job-oabc", "OABC"])
def test_ids_can_be_read_aloud(typed: str) -> None:
    assert resolve_id(typed, KNOWN) == "job-0abcdefg"


@pytest.mark.parametrize("typed", ["job-7f3k9q2m", "7f3k9q2m"])
def test_a_whole_id_asks_nobody(typed: str) -> None:
    assert resolve_id(typed, nobody_may_ask()) == "job-7f3k9q2m"


def test_an_ambiguous_beginning_lists_the_candidates() -> None:
    with pytest.raises(AmbiguousIdError, match="job-7f3k9q2m, job-7f3zzzzz") as caught:
        resolve_id("7f3", KNOWN)
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("typed", "otherwise"), [("oil", True), ("job-0I1", True), ("JOB-7F3", False), (" 7f3 ", False)]
)
def test_a_letter_that_is_read_as_a_digit_is_noticed(typed: str, otherwise: bool) -> None:
    assert read_otherwise(typed) is otherwise


@pytest.mark.parametrize("typed", ["zz", "", "job-", "../etc", "7f 3", "job-é", "a" * 33])
def test_what_fits_nothing_is_not_found(typed: str) -> None:
    with pytest.raises(NoSuchObjectError):
        resolve_id(typed, KNOWN)


def test_only_the_newest_are_searched() -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "job-zzzzzzzz"

    with pytest.raises(NoSuchObjectError, match=str(SEARCHED)):
        resolve_id("7f", endless())
    assert read == SEARCHED
