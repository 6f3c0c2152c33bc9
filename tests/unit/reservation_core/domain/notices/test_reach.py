"""Whether a notification reaches its user."""

import pytest

from reservation_core.domain.notices.kinds import NoticeChannel, TargetStatus
from reservation_core.domain.notices.reach import why_not_notified

EMAIL, SLACK = NoticeChannel.EMAIL, NoticeChannel.SLACK
READY, FAILING = TargetStatus.READY, TargetStatus.FAILING


@pytest.mark.parametrize(
    ("chosen", "unavailable", "targets", "said"),
    [
        ([EMAIL], [], [], "you have no notification address"),
        ([EMAIL], [], [(EMAIL, READY)], None),
        ([EMAIL], [], [(EMAIL, FAILING)], None),
        ([EMAIL, SLACK], [EMAIL], [(EMAIL, READY), (SLACK, READY)], None),
        ([EMAIL], [EMAIL], [(EMAIL, READY)], "none of your notification addresses"),
        ([EMAIL], [], [(SLACK, READY)], "none of your notification addresses"),
        ([], [], [(SLACK, READY)], "none of your notification addresses"),
        ([EMAIL], [], [(EMAIL, TargetStatus.UNVERIFIED)], "none of your notification addresses"),
        ([EMAIL], [], [(EMAIL, TargetStatus.SUSPENDED)], "none of your notification addresses"),
    ],
)
def test_it_reaches_a_user_by_a_chosen_channel_that_works(
    chosen: list[NoticeChannel],
    unavailable: list[NoticeChannel],
    targets: list[tuple[NoticeChannel, TargetStatus]],
    said: str | None,
) -> None:
    why = why_not_notified(chosen, unavailable, targets)
    assert why is None if said is None else why is not None and said in why
