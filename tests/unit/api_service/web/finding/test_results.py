"""What the palette says of what was found."""

import pytest

from api_service.web.finding.results import groups_of
from reservation_core.contracts.base import SearchHit
from reservation_core.domain.similar_names import FoundKind


@pytest.mark.parametrize(
    ("kind", "status", "user", "shown"),
    [
        (FoundKind.BOOKING, "confirmed", "ann", "booked"),
        (FoundKind.BOOKING, "offered", "ann", "offered to you"),
        (FoundKind.BOOKING, "offered", "bob", "offered"),
        (FoundKind.BOOKING, "ended", "bob", "over"),
        (FoundKind.JOB, "running", "ann", "running"),
    ],
)
def test_a_status_is_said_as_lists_say_it(kind: FoundKind, status: str, user: str, shown: str) -> None:
    hit = SearchHit(kind=kind, id="x-1", name=None, status=status, user=user, start=None)
    [group] = groups_of([], [hit], str, "ann")
    assert group.links[0].detail.split(" · ")[0] == shown
