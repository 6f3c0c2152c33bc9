"""Which connections stay when there are too many: against every order of coming, working, resting and going."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.network.connection_slots import PATIENCE_S, ConnectionSlots, GrantedSlot
from reservation_core.domain.network.http_limits import HttpLimits, Refusal, connections_that_fit

MOST, MOST_OF_ONE = 6, 3


@dataclass(eq=False)
class Connection:
    used_at: float
    busy: bool = False
    source: str | None = field(default=None)


def entered(slots: "ConnectionSlots[Connection]", source: str | None, now: float) -> Connection:
    made = Connection(now, source=source)
    assert slots.room(source, now) == GrantedSlot()
    slots.enter(made, source)
    return made


def test_the_oldest_stranger_goes_first_then_the_idlest() -> None:
    slots: ConnectionSlots[Connection] = ConnectionSlots(3, 3)
    known, old, young = (entered(slots, None, float(at)) for at in (0, 1, 2))
    slots.know(known)
    assert slots.room(None, 3.0) == GrantedSlot(old)
    slots.enter(Connection(3.0), None)
    assert slots.room(None, 3.5) == GrantedSlot(young)
    slots.enter(Connection(3.5), None)
    assert slots.room(None, 3.6) == GrantedSlot(known), "strangers that have only just come are given time"


def test_nobody_goes_who_works_or_has_only_just_come() -> None:
    slots: ConnectionSlots[Connection] = ConnectionSlots(2, 2)
    working, fresh = entered(slots, None, 0.0), entered(slots, None, 9.5)
    slots.know(working)
    working.busy = True
    assert slots.room(None, 10.0) is Refusal.SERVER_FULL
    assert slots.room(None, 9.5 + PATIENCE_S) == GrantedSlot(fresh)


def test_a_connection_that_was_used_since_is_not_the_idlest() -> None:
    slots: ConnectionSlots[Connection] = ConnectionSlots(2, 2)
    first, second = entered(slots, None, 0.0), entered(slots, None, 1.0)
    slots.know(first)
    slots.know(second)
    first.used_at = 50.0
    assert slots.room(None, 60.0) == GrantedSlot(second)


def test_an_address_that_has_all_of_its_own_displaces_its_own() -> None:
    slots: ConnectionSlots[Connection] = ConnectionSlots(MOST, 2)
    others = entered(slots, "a", 0.0)
    own = entered(slots, "b", 1.0)
    entered(slots, "b", 1.5).busy = True
    assert slots.room("b", 5.0) == GrantedSlot(own)
    slots.enter(Connection(5.0), "b")
    assert slots.room("b", 5.1) is Refusal.ADDRESS_FULL
    assert slots.room("c", 5.1) == GrantedSlot()
    slots.leave(others)
    assert slots.room("a", 5.1) == GrantedSlot()


WHAT = st.sampled_from(["come", "know", "work", "rest", "go"])
STEPS = st.lists(st.tuples(WHAT, st.integers(0, 30), st.sampled_from([0.0, 0.4, 2.0])), max_size=120)


@given(STEPS)
def test_bounds_hold_and_nobody_is_thrown_out_of_work(steps: list[tuple[str, int, float]]) -> None:
    slots: ConnectionSlots[Connection] = ConnectionSlots(MOST, MOST_OF_ONE)
    inside: list[Connection] = []
    now = 0.0
    for what, number, later in steps:
        now += later
        someone = inside[number % len(inside)] if inside else None
        if what == "come":
            source = ("a", "b", None)[number % 3]
            room = slots.room(source, now)
            if isinstance(room, Refusal):
                mine = [
                    connection for connection in inside if room is Refusal.SERVER_FULL or connection.source == source
                ]
                assert len(mine) == (MOST if room is Refusal.SERVER_FULL else MOST_OF_ONE)
                continue
            if room.instead_of is not None:
                assert not room.instead_of.busy
                inside.remove(room.instead_of)
            inside.append(Connection(now, source=source))
            slots.enter(inside[-1], source)
        elif someone is None:
            continue
        elif what == "know":
            slots.know(someone)
        elif what in ("work", "rest"):
            someone.busy, someone.used_at = what == "work", now
        else:
            inside.remove(someone)
            slots.leave(someone)
            slots.leave(someone)  # twice is as good as once
        assert len(slots) == len(inside) <= MOST
        assert all(sum(connection.source == source for connection in inside) <= MOST_OF_ONE for source in ("a", "b"))


def test_bodies_are_late_by_time_or_by_rate() -> None:
    limits = HttpLimits(10, 5, body_s=60, body_bytes_per_s=100, body_grace_s=10)
    assert not limits.body_is_late(0, 10)
    assert limits.body_is_late(0, 10.1)
    assert not limits.body_is_late(1_000, 20)
    assert limits.body_is_late(999, 20)
    assert limits.body_is_late(10**9, 60)


def test_descriptors_stay_free_for_the_rest_of_the_process() -> None:
    assert connections_that_fit(4096, descriptors=20_000, reserved=256) == 4096
    assert connections_that_fit(4096, descriptors=1024, reserved=256) == 768
    assert connections_that_fit(4096, descriptors=4096, reserved=256) == 3072
    assert connections_that_fit(100, descriptors=1024, reserved=256) == 100
    assert connections_that_fit(4096, descriptors=64, reserved=256) == 1
