"""What a session says of itself, and when it warns of its end."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.sessions.ways_in import WARNED_BEFORE, Place, due_warnings, greeting, split_rank

_NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
_MOMENTS = st.integers(-7200, 7200).map(lambda seconds: _NOON + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("user_name", "split"),
    [
        ("box+1", ("box", 1)), ("job-7f3k9q2m+0", ("job-7f3k9q2m", 0)), ("a+b+12", ("a+b", 12)), ("box", None),
        ("box+", None), ("+1", None), ("box+-1", None), ("box+12345", None), ("box+\u0661", None), ("box+1\n", None),
    ],
)  # fmt: skip
def test_a_rank_follows_the_job(user_name: str, split: tuple[str, int] | None) -> None:
    assert split_rank(user_name) == split


def test_the_greeting_without_gpus_says_so() -> None:
    [_, place] = greeting("job-7f3k9q2m", None, Place("node-1", None, ()), None, folder_goes=False).splitlines()
    assert place == "CPUs and memory on node-1"


def test_the_greeting_says_where_one_is_and_until_when() -> None:
    assert greeting("job-7f3k9q2m", "box", Place("node-1", "h100", (0, 3)), _NOON, folder_goes=True).splitlines() == [
        "Session job-7f3k9q2m (box)",
        "GPUs 0, 3 (h100) on node-1",
        "Ends Thu 26 Nov 2026 12:00 UTC. To extend it: gpu-dev extend job-7f3k9q2m --by 1h",
        "Files in this folder are deleted when the session ends: keep results elsewhere.",
    ]
    elsewhere = greeting("job-7f3k9q2m", None, Place("node-1", "h100", (2,)), None, folder_goes=False)
    assert elsewhere.splitlines() == ["Session job-7f3k9q2m", "GPU 2 (h100) on node-1"]


@given(_MOMENTS, _MOMENTS, _MOMENTS)
def test_a_warning_is_due_once_its_moment_has_come_on_connections_that_were_there(
    opened_at: datetime, ends_at: datetime, now: datetime
) -> None:
    due = {before for end, before in due_warnings(opened_at, ends_at, now) if end == ends_at}
    for before in WARNED_BEFORE:
        moment = ends_at - before
        assert (before in due) == (opened_at <= moment and moment <= now and now < ends_at)
