"""What browsers and programs say they take."""

import pytest

from api_service.requests.headers import takes_gzip


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        (["gzip, deflate, br"], True),
        (["br", "GZIP;q=0.5"], True),
        (["gzip;q=0"], False),
        (["gzip; q=0.000"], False),
        (["gzip;q=0.001"], True),
        (["x-gzip"], False),
        (["identity"], False),
        ([], False),
    ],
)
def test_gzip_is_taken_where_it_is_named_with_a_weight(said: list[str], taken: bool) -> None:
    assert takes_gzip({"headers": [(b"accept-encoding", value.encode()) for value in said]}) is taken
