"""TZ: zones that the machine knows are left alone, and all others are said to be UTC."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpu_dev.display.local_times import minute
from gpu_dev.inputs.machine_zone import settle_zone
from gpu_dev.inputs.times import zone_name

needs_zones = pytest.mark.skipif(
    not Path("/usr/share/zoneinfo/Europe/Stockholm").exists(), reason="this machine has no files of zones"
)
NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)


@pytest.fixture(autouse=True)
def own_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        yield
    time.tzset()


@pytest.mark.parametrize("zone", ["Nowhere", "Europe/Nowhere", ":Nowhere", "CEST", "/etc/no-such-zone"])
def test_an_unknown_zone_is_said_and_times_are_in_utc(zone: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.environ["TZ"] = zone
    time.tzset()
    settle_zone(os.environ)
    said = capsys.readouterr().err
    assert said == f"TZ={zone} names no time zone that this machine knows: times are in UTC.\n"
    assert minute(NOW) == "Thu 31 Jan 2030 09:00 UTC"
    assert zone_name(None) == "UTC"


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        pytest.param("Europe/Stockholm", "Thu 31 Jan 2030 10:00 CET", marks=needs_zones),
        pytest.param(":Europe/Stockholm", "Thu 31 Jan 2030 10:00 CET", marks=needs_zones),
        pytest.param("/usr/share/zoneinfo/Europe/Stockholm", "Thu 31 Jan 2030 10:00 CET", marks=needs_zones),
        ("CET-1CEST", "Thu 31 Jan 2030 10:00 CET"),
        ("<+0530>-5:30", "Thu 31 Jan 2030 14:30 UTC+05:30"),
        ("UTC0", "Thu 31 Jan 2030 09:00 UTC"),
        pytest.param("UTC", "Thu 31 Jan 2030 09:00 UTC", marks=needs_zones),
        ("", "Thu 31 Jan 2030 09:00 UTC"),
    ],
)
def test_other_zones_are_left_alone(zone: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.environ["TZ"] = zone
    time.tzset()
    settle_zone(os.environ)
    assert (capsys.readouterr().err, minute(NOW)) == ("", shown)
