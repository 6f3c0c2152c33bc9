"""The week of a project in figures and words."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from reservation_core.domain.notices.kinds import NoticeKind
from reservation_core.domain.notices.messages import NoticedEvent
from reservation_core.domain.notices.words import notice_of
from reservation_core.domain.policy.usage import NOT_SAMPLED, GpuTime, UsedGpus
from reservation_core.domain.policy.usage_digest import digest_of, week_to_sum_up

MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
WEEK = timedelta(days=7)
TIME = GpuTime(held=Decimal(36_000), used=Decimal(28_800), wasted=Decimal(3600))


@pytest.mark.parametrize(
    ("now", "week"),
    [
        (MONDAY + timedelta(hours=2), MONDAY - WEEK),
        (MONDAY + timedelta(hours=2, seconds=-1), MONDAY - 2 * WEEK),
        (MONDAY + timedelta(days=6, hours=23), MONDAY - WEEK),
    ],
)
def test_a_week_is_summed_up_two_hours_after_its_end(now: datetime, week: datetime) -> None:
    assert week_to_sum_up(now) == week


def test_a_digest_says_what_would_have_been_enough_where_there_is_data() -> None:
    data = digest_of(TIME, UsedGpus(100, 25.0, 61 * 2**30), MONDAY)
    notice = notice_of(
        NoticedEvent(NoticeKind.DIGEST, "project_digest", MONDAY + WEEK, "system", None, data, "project:vision"),
        None, user="ada", delivery="evt-1-ntg-1",
    )  # fmt: skip
    assert notice.subject == "[gpu-dev] Project vision: the week"
    assert "it held 10.0 GPU-hours and used 8.0: 2.0 were idle, of which 1.0 were wasted." in notice.text
    assert "25% utilised, with at most 61 GiB of memory in use on one: about 2.0 GPU-hours" in notice.text
    assert notice.text.endswith("`gpu-dev usage --by project --from 2030-01-07 --to 2030-01-14 -z UTC`.")
    silent = digest_of(TIME, NOT_SAMPLED, MONDAY)
    assert (silent["utilised"], silent["memory_peak"], silent["enough_gpu_hours"]) == (None, None, None)
