"""The policy, projects and usage as bodies of REST."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from api_service.presenting.verdicts import estimated_start, sooner_requests
from api_service.requests.csv_answers import table
from reservation_core.contracts.base import BrokenRule, CostOut
from reservation_core.contracts.policy import (
    MOST_NAMED,
    Explanation,
    LimitOut,
    Named,
    PolicyVerdict,
    ProjectOut,
    RelaxationIn,
    RuleBroken,
    RuleOut,
    RulesIn,
    UsageLineOut,
    UsageSeriesLineOut,
)
from reservation_core.contracts.schedulability import Schedulability, SeedSchedulability
from reservation_core.domain.gpu_use.idle_rules import IdleRule
from reservation_core.domain.planning.request_verdicts import Outlook
from reservation_core.domain.policy.limits import Limits
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.prices import Money, exact_amount
from reservation_core.domain.policy.usage import NOT_SAMPLED, GpuTime, UsageLine, UsageReport, UsedGpus
from reservation_core.domain.statuses import ReservationKind
from reservation_core.ports.policy.policies import Project, StoredRule
from reservation_core.usecases.pods.schedulability import UserVerdict
from reservation_core.usecases.policy.explain import Explained
from reservation_core.usecases.policy.policy_preview import PolicyPreview

_HOUR = Decimal(3600)
_LENGTHS = TypeAdapter(timedelta, config=ConfigDict(ser_json_timedelta="iso8601"))


def rule(stored: StoredRule) -> RuleOut:
    """The rules of one scope."""
    scope = stored.rule.scope
    return RuleOut(
        scope=str(scope),
        user=scope.user,
        project=scope.project,
        gpu_type=scope.gpu_type,
        rules=RulesIn.of(stored.rule.rules),
        from_file=stored.from_file,
        version=stored.version,
        changed_at=stored.changed_at,
        changed_by=stored.changed_by,
    )


def project(found: Project) -> ProjectOut:
    return ProjectOut(name=found.name, title=found.title, created_at=found.created_at, members=list(found.members))


def explanation(found: Explained, outlook: Outlook, kind: ReservationKind) -> Explanation:
    """The whole answer to a request that is not made."""
    return Explanation(
        verdict=outlook.verdict,
        starts_at=outlook.starts_at,
        reasons=[BrokenRule(code=reason.code, detail=reason.detail) for reason in outlook.reasons],
        estimated_start=estimated_start(outlook),
        queue_position=outlook.position,
        instead=sooner_requests(outlook),
        allowed=not found.broken,
        kind="booking" if kind is ReservationKind.BOOKING else "job",
        broken_rules=[
            RuleBroken(
                code=breach.code, detail=breach.detail, possible_from=breach.possible_from, ask_from=breach.ask_from
            )
            for breach in found.broken
        ],
        possible_from=found.possible_from,
        limits=[
            LimitOut(rule=use.name.value, value=_value(use.limit.value), used=use.used, scope=str(use.limit.scope))
            for use in found.uses
        ],
        exceptions=_exceptions(found.limits) if kind is ReservationKind.BOOKING else [],
        cost=None if found.cost is None else cost_out(found.cost),
    )


def usage_line(line: UsageLine, used: Mapping[str | None, UsedGpus]) -> UsageLineOut:
    return _line(line.key, line.time, line.costs, used.get(line.key, NOT_SAMPLED))


def usage_total(report: UsageReport, used: Mapping[str | None, UsedGpus]) -> UsageLineOut:
    return _line(None, report.total, report.costs, sum(used.values(), NOT_SAMPLED))


def usage_csv(by: UsageBy, lines: Sequence[UsageLine], used: Mapping[str | None, UsedGpus]) -> str:
    """A report as CSV (RFC 4180): a header, then a line for each key. Costs have a column for each unit."""
    names = ("held", "used", "idle", "wasted")
    units = sorted({cost.unit for line in lines for cost in line.costs})
    header = [by.value, *(f"{name}_gpu_s" for name in names), *(f"{name}_gpu_hours" for name in names)]
    header += [*(f"cost_{unit}" for unit in units), "utilised", "memory_peak"]
    rows = []
    for line in lines:
        times = [getattr(line.time, name) for name in names]
        amounts = {cost.unit: f"{exact_amount(cost.amount):f}" for cost in line.costs}
        rows.append(
            [
                _plain(line.key or ""),
                *(f"{time:f}" for time in times),
                *(f"{_hours(time):f}" for time in times),
                *(amounts.get(unit, "0.00") for unit in units),
                *_sampled(used.get(line.key, NOT_SAMPLED)),
            ]
        )
    return table(header, rows)


def usage_steps(
    key: str | None, times: Sequence[GpuTime], used: Mapping[tuple[str | None, int], UsedGpus]
) -> UsageSeriesLineOut:
    busy = [used.get((key, step), NOT_SAMPLED).utilised for step in range(len(times))]
    return UsageSeriesLineOut(
        key=key,
        held_gpu_hours=[_hours(time.held) for time in times],
        used_gpu_hours=[_hours(time.used) for time in times],
        wasted_gpu_hours=[_hours(time.wasted) for time in times],
        utilised=[None if part is None else round(part, 4) for part in busy],
    )


def schedulability(verdict: UserVerdict) -> Schedulability:
    return Schedulability(
        schedulable=verdict.schedulable,
        until=verdict.until,
        gpu_type=verdict.gpu_type,
        gpus=verdict.gpus,
        booking_id=verdict.booking_id,
        reason=verdict.reason,
        nodes=None if verdict.nodes is None else list(verdict.nodes),
    )


def seed_schedulability(verdict: UserVerdict) -> SeedSchedulability:
    """The verdict in the shape for older clients."""
    return SeedSchedulability(schedulable=verdict.schedulable, until=verdict.until, gpu=verdict.gpu_type)


def _sampled(used: UsedGpus) -> tuple[str, str]:
    """Empty where there is no data."""
    return (
        "" if used.utilised is None else f"{used.utilised:.4f}",
        "" if used.memory_peak is None else str(used.memory_peak),
    )


def _line(key: str | None, time: GpuTime, costs: Iterable[Money], used: UsedGpus) -> UsageLineOut:
    return UsageLineOut(
        key=key,
        held_gpu_s=time.held,
        used_gpu_s=time.used,
        idle_gpu_s=time.idle,
        wasted_gpu_s=time.wasted,
        held_gpu_hours=_hours(time.held),
        used_gpu_hours=_hours(time.used),
        idle_gpu_hours=_hours(time.idle),
        wasted_gpu_hours=_hours(time.wasted),
        costs=[cost_out(cost) for cost in costs],
        utilised=None if used.utilised is None else round(used.utilised, 4),
        memory_peak=used.memory_peak,
    )


def cost_out(cost: Money) -> CostOut:
    return CostOut(amount=exact_amount(cost.amount), unit=cost.unit)


def _hours(seconds: Decimal) -> float:
    return round(float(seconds / _HOUR), 6)


def _plain(text: str) -> str:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _value(value: Any) -> int | float | str | bool | None:
    match value:
        case timedelta():
            return _length(value)
        case Money() | IdleRule():
            return str(value)
        case _:
            plain: int | float | bool | None = value
            return plain


def _length(value: timedelta) -> str:
    text: str = _LENGTHS.dump_python(value, mode="json")
    return text


def _exceptions(limits: Limits) -> list[RelaxationIn]:
    relaxed = limits.relaxed_if_starts_within
    if relaxed is None or relaxed.value is None:
        return []
    return [
        RelaxationIn(within=relaxation.starts_within, lifts=sorted(relaxation.lifts)) for relaxation in relaxed.value
    ]


def preview(found: PolicyPreview) -> PolicyVerdict:
    """The changed rules, and the users, projects and reservations that they would affect."""
    reservations = [affected.reservation for affected in found.affected]
    jobs = [reservation for reservation in reservations if reservation.kind is ReservationKind.JOB]
    bookings = [reservation for reservation in reservations if reservation.kind is ReservationKind.BOOKING]
    codes = Counter(breach.code for affected in found.affected for breach in affected.broken)
    return PolicyVerdict(
        scope=str(found.stored.rule.scope),
        rules=RulesIn.of(found.stored.rule.rules),
        users=_named(reservation.user for reservation in reservations),
        projects=_named(reservation.project for reservation in reservations if reservation.project is not None),
        running=_named(job.id for job in jobs if job.start is not None),
        waiting=_named(job.id for job in jobs if job.start is None),
        bookings=_named(booking.id for booking in bookings),
        broken_rules=dict(sorted(codes.items())),
    )


def _named(names: Iterable[str]) -> Named:
    found = sorted(set(names))
    return Named(count=len(found), names=found[:MOST_NAMED])
