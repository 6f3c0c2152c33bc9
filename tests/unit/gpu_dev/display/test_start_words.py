"""What `gpu-dev submit --test-only` says."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from gpu_dev.display.output import Format
from gpu_dev.display.verdicts import show_start
from gpu_dev.server.exchange import read_answer
from gpu_dev.wire.jobs import JobSubmit, JobVerdict, Workload
from tests.unit.gpu_dev.display.test_wait_words import FULL, QUOTA, UNTIL, in_berlin

__all__ = ["in_berlin"]
NOW = datetime(2026, 11, 26, 11, 0, tzinfo=UTC)
REQUEST = JobSubmit(gpus=4, gpu_type="h100", nodes=2, duration="PT4H", workload=Workload(command=["true"], env={}))


def answered(**fields: Any) -> JobVerdict:
    answer = {
        "verdict": "accepted", "promised_start_at": UNTIL, "estimated_start": None, "queue_position": 3,
        "reasons": [FULL], "instead": [], **fields,
    }  # fmt: skip
    return read_answer(JobVerdict, json.dumps(answer).encode())


def sooner(change: str, **fields: Any) -> dict[str, Any]:
    request = {"change": change, "gpus": 4, "gpu_type": "h100", "nodes": 2, "duration": "PT4H"}
    return {**request, "promised_start_at": "2026-11-26T12:00:00Z", **fields}


def test_all_of_it() -> None:
    answer = answered(
        estimated_start={"p50": "2026-11-26T12:10:00Z", "p90": "2026-11-26T12:45:00Z"},
        instead=[
            sooner("shorter", duration="PT1H30M"),
            sooner("fewer", gpus=2, nodes=1),
            sooner("type", gpu_type="a100", promised_start_at="2026-11-26T11:00:20Z"),
        ],
    )
    assert show_start(REQUEST, answer, Format.TABLE, NOW).splitlines() == [
        "Would start by Thu 26 Nov 2026 14:20 CET at the latest.",
        "Likely start: Thu 26 Nov 2026 13:10 CET; nine times in ten by Thu 26 Nov 2026 13:45 CET.",
        "Place in the queue for h100: 3.",
        f"Reason: {FULL['detail']}",
        "Would start sooner:",
        "  - --for 1h30m: Thu 26 Nov 2026 13:00 CET",
        "  - --gpus 2 --nodes 1: Thu 26 Nov 2026 13:00 CET",
        "  - --type a100: now",
    ]


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({"verdict": "starts_now", "queue_position": None, "reasons": []}, "Would start now."),
        ({"promised_start_at": None}, "Would wait. No start can be promised yet."),
    ],
)
def test_the_first_line(fields: dict[str, Any], first: str) -> None:
    assert show_start(REQUEST, answered(**fields), Format.TABLE, NOW).splitlines()[0] == first


def test_it_says_that_the_likely_start_is_not_known_yet() -> None:
    lines = show_start(REQUEST, answered(), Format.TABLE, NOW).splitlines()
    assert lines[1] == "Likely start: not known yet."
    off = show_start(REQUEST, answered(estimates=False), Format.TABLE, NOW).splitlines()
    assert off[1] == "Likely start: unknown. Estimates are switched off on this server."
    now = answered(verdict="starts_now", queue_position=None, reasons=[])
    assert show_start(REQUEST, now, Format.TABLE, NOW) == "Would start now.\n"


@pytest.mark.parametrize(
    ("booking_id", "fields"),
    [("bkg-1", {}), (UNSET, {"promised_start_at": None}), (UNSET, {"reasons": [QUOTA, FULL]})],
)
def test_it_is_silent_where_no_likely_start_will_come(booking_id: str | UnsetType, fields: dict[str, Any]) -> None:
    """Within a booking, without a promise, and while a quota holds the job back."""
    request = replace(REQUEST, booking_id=booking_id)
    assert "Likely" not in show_start(request, answered(**fields), Format.TABLE, NOW)


def test_programs_get_the_data() -> None:
    shown = json.loads(show_start(REQUEST, answered(instead=[sooner("shorter")]), Format.JSON, NOW))
    assert (shown["promised_start_at"], shown["estimated_start"]) == ("2026-11-26T13:20:00.000Z", None)
    assert shown["instead"][0]["change"] == "shorter"
