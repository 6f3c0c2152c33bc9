"""What a tile says, and to whom."""

from datetime import datetime

import pytest

from api_service.access.sight import Sight
from api_service.web.fleet.card_tiles import MEANINGS, WORDS, TileState, TileWriter, state_of
from reservation_core.domain.statuses import GpuState, ReservationKind, Role
from reservation_core.ports.nodes.cards_now import GpuNow
from reservation_core.ports.people.identities import Principal
from tests.unit.api_service.web.fleet.fleets import ADA, BOB, HOUR, NOW, card, hold

SOON = hold(start=NOW + HOUR / 2)
STATES = [
    (card(), True, TileState.FREE),
    (card(), False, TileState.AWAY),
    (card(follower=SOON), True, TileState.SOON),
    (card(follower=SOON), False, TileState.AWAY),
    (card(holder=hold(ADA)), True, TileState.MINE),
    (card(holder=hold(ADA)), False, TileState.MINE),
    (card(holder=hold(BOB)), True, TileState.OTHERS),
    (card(holder=hold(BOB), follower=SOON), True, TileState.OTHERS),
    (card(0, GpuState.MAINTENANCE, hold(kind=ReservationKind.MAINTENANCE)), True, TileState.MAINTENANCE),
    (card(0, GpuState.MAINTENANCE), True, TileState.MAINTENANCE),
    (card(0, GpuState.LOST), False, TileState.LOST),
    (card(0, GpuState.LOST, hold(ADA)), True, TileState.LOST),
    (card(0, GpuState.FOREIGN), True, TileState.FOREIGN),
    (card(0, GpuState.QUARANTINED), True, TileState.QUARANTINED),
]


def _teller(*, fellows: dict[int, str] | None = None, role: Role = Role.USER) -> TileWriter:
    caller = Principal(ADA, "ada", role, "tok-1", None)
    return TileWriter(Sight(caller, fellows), lambda when: f"{when:%H:%M}")


@pytest.mark.parametrize(("shown", "available", "state"), STATES)
def test_every_card_has_one_state(shown: GpuNow, available: bool, state: TileState) -> None:
    assert state_of(shown, available=available, user_id=ADA) is state
    to_nobody = state_of(shown, available=available)
    assert to_nobody is (TileState.OTHERS if state is TileState.MINE else state)


def test_every_state_has_its_words() -> None:
    assert set(WORDS) == set(MEANINGS) == set(TileState)
    assert {state for _, _, state in STATES} == set(TileState)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (card(3), "GPU 3: free"),
        (card(3, holder=hold(ADA)), "GPU 3: yours, until 14:00"),
        (card(3, holder=hold(BOB)), "GPU 3: taken, bob until 14:00"),
        (card(3, follower=SOON), "GPU 3: free, promised soon, 12:30: bob"),
        (card(3, follower=hold(ADA, start=NOW + HOUR / 2)), "GPU 3: free, promised soon, 12:30: you"),
        (card(3, follower=hold(kind=ReservationKind.MAINTENANCE, start=NOW + HOUR / 2)),
         "GPU 3: free, maintenance soon, 12:30: maintenance"),
        (card(3, follower=hold(kind=ReservationKind.BOOKING, start=NOW + HOUR / 2)),
         "GPU 3: free, booked soon, 12:30: bob"),
        (card(3, GpuState.MAINTENANCE, hold(kind=ReservationKind.MAINTENANCE)), "GPU 3: maintenance, until 14:00"),
        (card(3, GpuState.LOST, hold(BOB)), "GPU 3: lost, bob until 14:00"),
        (card(3, GpuState.LOST, hold(ADA)), "GPU 3: lost, you until 14:00"),
        (card(3, GpuState.LOST), "GPU 3: lost"),
    ],
)  # fmt: skip
def test_a_tile_says_who_has_it_until_when(shown: GpuNow, said: str) -> None:
    tile = _teller().tile(shown, available=True, address="n%2F1")
    assert tile.said == said
    assert tile.address == "?card=n%2F1/3"


@pytest.mark.parametrize(
    ("fellows", "role", "name"),
    [(None, Role.USER, "bob"), ({BOB: "bob"}, Role.USER, "bob"), ({}, Role.USER, None), ({}, Role.ADMIN, "bob")],
)
def test_names_are_told_to_those_who_may_see_them(fellows: dict[int, str] | None, role: Role, name: str | None) -> None:
    teller = _teller(fellows=fellows, role=role)
    for shown in (card(holder=hold(BOB)), card(follower=SOON)):
        said = teller.tile(shown, available=True, address="n1").said
        assert ("bob" in said) is (name is not None)
        assert ("somebody" in said) is (name is None)


def test_times_are_written_as_the_viewer_has_them() -> None:
    def shouted(when: datetime) -> str:
        return f"<{when.hour}>"

    teller = TileWriter(_teller().sight, shouted)
    assert teller.tile(card(holder=hold(BOB)), available=True, address="n1").until == "bob until <14>"
