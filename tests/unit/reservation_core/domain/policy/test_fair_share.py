"""The order of users with equal priority, by what they used."""

from reservation_core.domain.policy.fair_share import ranks


def test_less_goes_first_and_what_is_alike_goes_together() -> None:
    assert ranks({1: 5000.0, 2: 100.0, 3: 101.0, 4: 90_000.0, 5: 3.0}) == {2: 1, 3: 1, 1: 2, 4: 3}
    assert ranks({}) == {}
