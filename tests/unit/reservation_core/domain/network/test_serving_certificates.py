"""The renewal of certificates, by replicas that read and write in any order: no call ever meets what it can't check."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.network.serving_certificates import (
    Authority,
    CertificateStep,
    Holdings,
    RenewalRules,
    Serving,
    authorities_alive,
    next_step,
)
from tests.examples import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = frozenset({"webhook.system.svc"})
RULES = RenewalRules(NAMES, valid_for=90 * DAY, renew_before=30 * DAY, settle=timedelta(minutes=1))


def serving(made: datetime = NOW, authority: str = "a", names: frozenset[str] = NAMES) -> Serving:
    return Serving(names, made, made + RULES.valid_for, authority)


def holdings(
    current: Serving | None, coming: Serving | None = None, *authorities: Authority, ours: bool = True
) -> Holdings:
    alive = authorities or tuple(
        Authority(serving.authority, serving.ends_at) for serving in (coming, current) if serving
    )
    return Holdings(current, coming, alive, ours)


@pytest.mark.parametrize(
    ("held", "trusted", "after", "step"),
    [
        (None, True, 0 * DAY, CertificateStep.CREATE),
        (holdings(None), True, 0 * DAY, CertificateStep.CREATE),
        (holdings(serving()), False, 0 * DAY, CertificateStep.TRUST),
        (holdings(serving()), True, 0 * DAY, CertificateStep.WAIT),
        (holdings(serving()), True, 59 * DAY, CertificateStep.WAIT),
        (holdings(serving()), True, 60 * DAY, CertificateStep.STAGE),
        (holdings(serving()), True, 90 * DAY, CertificateStep.CREATE),
        (holdings(serving(), None, Authority("another", NOW + 90 * DAY)), True, 0 * DAY, CertificateStep.CREATE),
        (holdings(serving(names=frozenset({"old.svc"}))), True, 0 * DAY, CertificateStep.STAGE),
        (holdings(serving(), serving(NOW + 60 * DAY, "b")), False, 60 * DAY, CertificateStep.TRUST),
        (holdings(serving(), serving(NOW + 60 * DAY, "b")), True, 60 * DAY, CertificateStep.WAIT),
        (holdings(serving(), serving(NOW + 60 * DAY, "b")), True, 60 * DAY + RULES.settle, CertificateStep.PROMOTE),
        (holdings(serving(), serving(NOW + 60 * DAY, "b", frozenset({"x"}))), True, 61 * DAY, CertificateStep.STAGE),
        (holdings(serving(NOW, "b"), None, Authority("b", NOW + 90 * DAY), Authority("a", NOW + DAY)), True, 2 * DAY,
         CertificateStep.FORGET),
        (holdings(None, None, Authority("theirs", NOW + DAY), ours=False), False, 99 * DAY, CertificateStep.TRUST),
        (holdings(None, None, Authority("theirs", NOW + DAY), ours=False), True, 99 * DAY, CertificateStep.WAIT),
        (holdings(None, ours=False), False, 0 * DAY, CertificateStep.WAIT),
    ],
)  # fmt: skip
def test_the_next_step(held: Holdings | None, trusted: bool, after: timedelta, step: CertificateStep) -> None:
    assert next_step(held, trusted, RULES, NOW + after) is step


@dataclass
class Replica:
    """Somebody who looked, and has not written yet."""

    version: int = -1
    held: Holdings | None = None
    step: CertificateStep = CertificateStep.WAIT


class World:
    """A Secret with a version, and whom the API server trusts."""

    def __init__(self) -> None:
        self.now = NOW
        self.version = 0
        self.held: Holdings | None = None
        self.trusted: frozenset[str] = frozenset()
        self.made = 0

    def look(self, replica: Replica) -> None:
        trusted = self.held is None or self.trusted == authorities_alive(self.held, self.now)
        replica.version, replica.held = self.version, self.held
        replica.step = next_step(self.held, trusted, RULES, self.now)

    def write(self, replica: Replica) -> None:
        if replica.version != self.version or replica.step is CertificateStep.WAIT:
            return  # overtaken: the API server refuses it
        held = replica.held
        if replica.step is CertificateStep.TRUST:
            assert held is not None
            self.trusted = authorities_alive(held, self.now)
        else:
            self.held = self._written(replica.step, held)
            self.version += 1
        replica.step = CertificateStep.WAIT

    def _written(self, step: CertificateStep, held: Holdings | None) -> Holdings:
        alive = authorities_alive(held, self.now) if held else frozenset()
        kept = tuple(authority for authority in (held.authorities if held else ()) if authority.fingerprint in alive)
        if step in (CertificateStep.CREATE, CertificateStep.STAGE):
            self.made += 1
            made = serving(self.now, str(self.made))
            authorities = (Authority(made.authority, made.ends_at), *kept)
            if step is CertificateStep.CREATE:
                return Holdings(made, None, authorities, ours=True)
            assert held is not None
            return replace(held, coming=made, authorities=authorities)
        assert held is not None
        if step is CertificateStep.PROMOTE:
            return replace(held, serving=held.coming, coming=None)
        return replace(held, authorities=kept)

    def assert_calls_work(self) -> None:
        assert self.held is not None
        assert self.held.serving is not None
        assert self.held.serving.ends_at > self.now
        assert self.held.serving.authority in self.trusted


EVENTS = st.lists(
    st.tuples(st.sampled_from(["look", "write"]), st.integers(0, 2)) | st.integers(0, 20 * 86_400), max_size=120
)


@examples(300)
@given(EVENTS)
def test_whatever_the_order_what_is_used_is_trusted(events: list[tuple[str, int] | int]) -> None:
    world, replicas = World(), [Replica() for _ in range(3)]
    turns(world, replicas[0])
    since_turn = 0.0
    for event in events:
        if isinstance(event, int):
            # Somebody comes round at least once in 20 days, which is long before the end of what is used.
            world.now += timedelta(seconds=event)
            since_turn += event
            if since_turn >= 20 * 86_400:
                turns(world, replicas[0])
                since_turn = 0
        elif event[0] == "look":
            world.look(replicas[event[1]])
        else:
            world.write(replicas[event[1]])
        world.assert_calls_work()
    assert len(world.held.authorities if world.held else ()) <= 2 + len(events)


def turns(world: World, replica: Replica) -> None:
    for _ in range(6):
        world.look(replica)
        world.write(replica)
