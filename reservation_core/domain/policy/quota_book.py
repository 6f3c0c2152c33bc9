"""What everybody has under their quotas, and from when on a waiting job would stay within them.

Everything in the common calendar counts: what runs, what is booked, and the slots of waiting jobs. So a promised start
holds when it comes, since later requests must fit beside it. Times and lengths are ints of microseconds.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from reservation_core.domain.calendar import length_micros, to_micros, to_moment
from reservation_core.domain.model import Reason
from reservation_core.domain.plan import Asker
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.policy.quota_meters import Amount, AtOnce, InWeeks, Meter
from reservation_core.domain.policy.rule_words import beside_text, counted, hours_text, scope_text
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.statuses import ReasonCode

_HOUR = length_micros(timedelta(hours=1))


class Counted(NamedTuple):
    """What quotas count: the GPUs of a user or a project, of one type or all."""

    user: str | None
    project: str | None
    gpu_type: str | None


class QuotaClaim(NamedTuple):
    """What a user or project has of a type of GPU."""

    user: str
    project: str | None
    gpu_type: str
    amount: Amount


class _Key(NamedTuple):
    """A meter: of GPUs at once or GPU-hours a week, and what it counts."""

    at_once: bool
    counted: Counted


class _Bound(NamedTuple):
    """A quota of an asker, in the meter's unit."""

    meter: Meter
    key: _Key
    limit: int
    scope: Scope


class QuotaBook:
    """The quotas of one policy. `names` are users' names by id; a user without a name is not bound."""

    def __init__(self, policy: Policy, names: Mapping[int, str]) -> None:
        self._policy = policy
        self.is_empty = policy.is_empty
        self._names = names
        self._bounds: dict[Asker, tuple[_Bound, ...]] = {}
        self._meters: dict[_Key, Meter] = {}
        self._claims: dict[str, tuple[QuotaClaim, ...]] = {}
        self._ids: dict[tuple[str | None, str | None], set[str]] = {}

    def binds(self, asker: Asker) -> bool:
        """Whether any quota applies."""
        return bool(self._bounds_of(asker))

    def counts_any(self, asker: Asker, freed: Container[Counted]) -> bool:
        """Whether a quota applies that counts one of these."""
        return any(bound.key.counted in freed for bound in self._bounds_of(asker))

    def earliest(self, asker: Asker, gpus: int, length: int, start: int, own: str = "") -> int | None:
        """The first time from `start` on at which this much more stays within every quota; None when there is none.

        What the reservation `own` has does not count.
        """
        bounds = self._bounds_of(asker)
        if own not in self._claims:
            return _earliest(bounds, gpus, length, start)
        with self._without(own, bounds):
            return _earliest(bounds, gpus, length, start)

    def why_not(
        self, asker: Asker, gpus: int, length: int, start: int, own: str = "", *, now: int | None = None
    ) -> Reason | None:
        """The quotas that this much more from `start` would break; None if it is allowed.

        The message calls `now` now, by default the start.
        """
        bounds = self._bounds_of(asker)
        with self._without(own, bounds):
            broken = [
                _explain(bound, gpus, start, length, start if now is None else now)
                for bound in bounds
                if bound.meter.earliest(gpus, length, start, bound.limit) != start
            ]
        return Reason(ReasonCode.QUOTA_REACHED, " ".join(broken)) if broken else None

    def set_claims(self, reservation_id: str, claims: tuple[QuotaClaim, ...]) -> set[Counted]:
        """Set what a reservation has from now on; returns of what others may have more than before."""
        before = self._claims.get(reservation_id, ())
        if before == claims:
            return set()
        for claim in before:
            for meter in self._counting(claim):
                meter.remove(claim.amount)
        for claim in claims:
            for meter in self._counting(claim):
                meter.add(claim.amount)
        for ids in self._ids_of(before):
            ids.discard(reservation_id)
        for ids in self._ids_of(claims):
            ids.add(reservation_id)
        if claims:
            self._claims[reservation_id] = claims
        else:
            del self._claims[reservation_id]
        smaller = [claim for claim in before if not any(_covers(after, claim) for after in claims)]
        return {quota for claim in smaller for quota in _counted_by(claim)}

    def claim(self, reservation_id: str, asker: Asker, amount: Amount) -> set[Counted]:
        """Set what a job that waits or starts has; returns of what others may have more than before."""
        user = self._names.get(asker.owner)
        claims = () if user is None else (QuotaClaim(user, asker.project, asker.gpu_type, amount),)
        return self.set_claims(reservation_id, claims)

    def note_held(self, holdings: Iterable[Holding], waiting: Collection[str] = ()) -> set[Counted]:
        """Note all that is held and booked, and this week's returned time; returns of what others may have more now.

        The claims of `waiting` reservations are known already.
        """
        claims: dict[str, list[QuotaClaim]] = {}
        for holding in holdings:
            claims.setdefault(holding.reservation_id, []).append(_claim(holding))
        freed: set[Counted] = set()
        for gone in [claim for claim in self._claims if claim not in claims and claim not in waiting]:
            freed |= self.set_claims(gone, ())
        for reservation_id, held in claims.items():
            if reservation_id not in waiting:
                freed |= self.set_claims(reservation_id, tuple(sorted(held, key=_claim_order)))
        return freed

    def _bounds_of(self, asker: Asker) -> tuple[_Bound, ...]:
        known = self._bounds.get(asker)
        if known is None:
            user = self._names.get(asker.owner)
            if user is None:
                return ()
            known = self._bounds[asker] = tuple(self._find_bounds(user, asker.project, asker.gpu_type))
        return known

    def _find_bounds(self, user: str, project: str | None, gpu_type: str) -> Iterator[_Bound]:
        for name, limit in self._policy.limits(user, project, gpu_type):
            if name not in (RuleName.MAX_GPUS, RuleName.MAX_GPU_HOURS_PER_WEEK) or limit.value is None:
                continue
            at_once = name is RuleName.MAX_GPUS
            scope = limit.scope
            # A quota counts by the scope that sets it, see `limits`.
            key = _Key(at_once, Counted(user if scope.project is None else None, scope.project, scope.gpu_type))
            allowed = limit.value if at_once else length_micros(limit.value * timedelta(hours=1))
            yield _Bound(self._meter(key), key, allowed, scope)

    def _meter(self, key: _Key) -> Meter:
        if key not in self._meters:
            meter: Meter = AtOnce() if key.at_once else InWeeks()
            for claim_id in self._ids.get(key.counted[:2], ()):
                for claim in self._claims[claim_id]:
                    if key.counted in _counted_by(claim):
                        meter.add(claim.amount)
            self._meters[key] = meter
        return self._meters[key]

    def _counting(self, claim: QuotaClaim) -> Iterator[Meter]:
        """The meters that count a claim."""
        for quota in _counted_by(claim):
            for at_once in (True, False):
                meter = self._meters.get(_Key(at_once, quota))
                if meter is not None:
                    yield meter

    def _ids_of(self, claims: Iterable[QuotaClaim]) -> Iterator[set[str]]:
        for claim in claims:
            yield self._ids.setdefault((claim.user, None), set())
            if claim.project is not None:
                yield self._ids.setdefault((None, claim.project), set())

    @contextmanager
    def _without(self, own: str, bounds: Sequence[_Bound]) -> Iterator[None]:
        """Leave out what the reservation `own` has."""
        removed = [
            (bound.meter, claim.amount)
            for claim in self._claims.get(own, ())
            for bound in bounds
            if bound.key.counted in _counted_by(claim)
        ]
        for meter, amount in removed:
            meter.remove(amount)
        try:
            yield
        finally:
            for meter, amount in removed:
                meter.add(amount)


def _earliest(bounds: Sequence[_Bound], gpus: int, length: int, start: int) -> int | None:
    at = start
    while True:
        previous = at
        for bound in bounds:
            earliest = bound.meter.earliest(gpus, length, at, bound.limit)
            if earliest is None:
                return None
            at = earliest
        if at == previous:
            return at


def _claim(holding: Holding) -> QuotaClaim:
    amount = Amount(holding.gpus, to_micros(holding.start), to_micros(holding.end))
    return QuotaClaim(holding.user, holding.project, holding.gpu_type, amount)


def _claim_order(claim: QuotaClaim) -> tuple[str, str, str, Amount]:
    return (claim.user, claim.project or "", claim.gpu_type, claim.amount)


def _covers(after: QuotaClaim, before: QuotaClaim) -> bool:
    return (
        after[:3] == before[:3]
        and after.amount.gpus >= before.amount.gpus
        and after.amount.start <= before.amount.start
        and after.amount.end >= before.amount.end
    )


def _counted_by(claim: QuotaClaim) -> list[Counted]:
    """The quotas that count a claim, by what they count."""
    quotas = [Counted(claim.user, None, None), Counted(claim.user, None, claim.gpu_type)]
    if claim.project is not None:
        quotas += [Counted(None, claim.project, None), Counted(None, claim.project, claim.gpu_type)]
    return quotas


def _explain(bound: _Bound, gpus: int, start: int, length: int, now: int) -> str:
    scope = scope_text(bound.scope)
    if isinstance(bound.meter, AtOnce):
        most, at = bound.meter.most(start, start + length)
        beside = beside_text(most, bound.scope, to_moment(at), to_moment(now))
        return f"Asked for: {counted(gpus, 'GPU')}{beside}; the limit is {bound.limit} at once ({scope})."
    week, *times = bound.meter.first_over(gpus, length, start, bound.limit)
    asked, used, limit = (hours_text(timedelta(hours=gpu_time / _HOUR)) for gpu_time in (*times, bound.limit))
    return (
        f"{asked} GPU-hours are asked for in the week from {to_moment(week):%Y-%m-%d} (UTC), where {used} are taken; "
        f"{limit} are allowed ({scope})."
    )
