"""Bytes for people."""

import pytest

from reservation_core.domain.request_terms import size_words


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (512, "512 bytes"),
        (1023, "1023 bytes"),
        (4096, "4 KiB"),
        (2**20, "1 MiB"),
        (64 * 2**30, "64 GiB"),
        (3 * 2**39, "1.5 TiB"),
        (5_687_610_409, "5.3 GiB"),
        (1010 * 2**30, "1010 GiB"),
    ],
)
def test_a_size_has_the_unit_in_which_it_is_short(size: int, words: str) -> None:
    assert size_words(size) == words
