"""Time zones by name."""

from zoneinfo import available_timezones

import pytest

from reservation_core.domain.wall_times import WallTimeError, zone_of

_NONE = ("localtime", "Factory", "posixrules")
_OTHERS = (
    "",
    "europe/paris",
    "Europe",
    "Europe/Nowhere",
    "Europe/Paris/X",
    "posix/UTC",
    "right/UTC",
    "tzdata.zi",
    "UTC\n",
)


def test_every_zone_of_the_database_is_known() -> None:
    names = available_timezones() - set(_NONE)
    assert {zone_of(name).key for name in names} == names


@pytest.mark.parametrize(
    "name", [*_NONE, *_OTHERS, "/etc/localtime", "../UTC", "Europe/../UTC", "A" * 5000, "Ä", "A\x00"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(WallTimeError, match="IANA"):
        zone_of(name)
