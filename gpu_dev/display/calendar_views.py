"""Tables of bookings, slots, rules, usage, maintenance windows and notification targets."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gpu_dev.display.amounts import resource_words
from gpu_dev.display.local_times import local_sentence, local_time, minute
from gpu_dev.display.output import Column, View, amount, as_data
from gpu_dev.display.views import wanted_gpus
from gpu_dev.inputs.durations import format_duration
from reservation_core.domain.bookings.windows import fate_words
from reservation_core.domain.gpu_use.figures import memory_figure
from reservation_core.domain.policy.prices import rounded_cost
from reservation_core.domain.short_durations import plain_iso8601
from reservation_core.domain.status_words import booking_status, window_status
from reservation_core.domain.statuses import RequestVerdict

if TYPE_CHECKING:
    # For annotations alone: a command loads the contracts of what it shows.
    from gpu_dev.wire.base import CostOut
    from gpu_dev.wire.bookings import BookingOut, BookingVerdict, FeedCreated, FreeSlotOut
    from gpu_dev.wire.maintenance import AffectedOut, MaintenanceOut
    from gpu_dev.wire.notices import NoticeTargetOut
    from gpu_dev.wire.policy import (
        LimitOut,
        Named,
        PolicyVerdict,
        ProjectOut,
        RuleOut,
        RulesIn,
        UsageLineOut,
    )


def booked_on(booking: "BookingOut | BookingVerdict") -> str:
    """A booking's GPUs, as `n1:0,1 n2:4`."""
    return " ".join(f"{one.node}:{','.join(map(str, one.gpu_indices))}" for one in booking.allocations)


def costs_in_words(costs: Iterable["CostOut"]) -> str:
    """Costs of different units, as `1,240.50 EUR, 3.00 credits`."""
    return ", ".join(rounded_cost(cost.amount, cost.unit) for cost in costs)


def places(window: "MaintenanceOut") -> str:
    """A window's GPUs, as `n1:0,1 n2:4`."""
    by_node: dict[str, list[int]] = {}
    for card in window.gpus:
        by_node.setdefault(card.node, []).append(card.index)
    return " ".join(f"{node}:{','.join(map(str, sorted(indices)))}" for node, indices in by_node.items())


def becomes(affected: "AffectedOut") -> str:
    """A window's effect on a reservation, in words."""
    return local_sentence(fate_words(affected.fate, affected.ends_at, affected.resumes_at, affected.goes_on_as))


BOOKING: "View[BookingOut]" = View(
    name=lambda one: one.id,
    columns=(
        Column("ID", lambda one: one.id),
        Column("TITLE", lambda one: one.title or ""),
        Column("USER", lambda one: one.user or "-"),
        Column("STATUS", lambda one: booking_status(one.status, mine=False)),
        Column("GPUS", lambda one: wanted_gpus(one.gpus, one.gpu_type, one.nodes)),
        Column("START", lambda one: minute(one.start)),
        Column("END", lambda one: minute(one.end)),
        Column("WHERE", booked_on),
        Column("RESOURCES", lambda one: resource_words(one.resources), wide=True),
        Column("PROJECT", lambda one: one.project or "", wide=True),
        Column("SERIES", lambda one: one.series_id or "", wide=True),
        Column("OFFER UNTIL", lambda one: minute(one.offer_until), wide=True),
        Column("REASON", lambda one: one.reason.code.value, wide=True),
    ),
    empty='No bookings. Book a slot: gpu-dev book create --gpus 1 --start "tomorrow 09:00" --for 4h',
)


def bookings_of(user: str | None) -> "View[BookingOut]":
    """The table of bookings that were filtered, of one user or of several."""
    whose = "" if user is None else f" of {user}"
    return View(BOOKING.name, BOOKING.columns, empty=f"No booking{whose} matches. Everybody's: gpu-dev book list --all")


WAITLIST: "View[BookingOut]" = View(
    BOOKING.name,
    BOOKING.columns,
    empty="No request is on the waitlist. `gpu-dev book create --wait` puts one there if its time is taken.",
)

BOOKING_DETAILS: "View[BookingOut]" = View(
    name=lambda one: one.id,
    columns=(
        Column("ID", lambda one: one.id),
        Column("TITLE", lambda one: one.title or ""),
        Column("USER", lambda one: one.user or "-"),
        Column("PROJECT", lambda one: one.project or ""),
        Column("STATUS", lambda one: booking_status(one.status, mine=False)),
        Column("REASON", lambda one: f"{one.reason.code.value}: {local_sentence(one.reason.detail)}"),
        Column("GPUS", lambda one: wanted_gpus(one.gpus, one.gpu_type, one.nodes)),
        Column("START", lambda one: minute(one.start)),
        Column("END", lambda one: minute(one.end)),
        Column("FOR", lambda one: format_duration(one.duration)),
        Column("WHERE", booked_on),
        Column("RESOURCES", lambda one: resource_words(one.resources)),
        Column("JOBS", lambda one: " ".join(one.jobs)),
        Column("SERIES", lambda one: one.series_id or ""),
        Column("FIRST USED", lambda one: local_time(one.used_at)),
        Column("RELEASED UNLESS USED BY", lambda one: local_time(one.release_at)),
        Column("OFFERED UNTIL", lambda one: local_time(one.offer_until)),
        Column("WAITS UNTIL", lambda one: local_time(one.waits_until)),
        Column("CREATED", lambda one: local_time(one.created_at)),
    ),
)

VERDICT: "View[BookingVerdict]" = View(
    name=lambda one: f"{one.start:%Y-%m-%dT%H:%MZ}",
    columns=(
        Column("VERDICT", lambda one: "Starts now" if one.verdict is RequestVerdict.STARTS_NOW else "Accepted"),
        Column("STATUS", lambda one: booking_status(one.status, mine=False)),
        Column("GPUS", lambda one: wanted_gpus(one.gpus, one.gpu_type, one.nodes)),
        Column("START", lambda one: minute(one.start)),
        Column("END", lambda one: minute(one.end)),
        Column("WHERE", booked_on),
        Column("RESOURCES", lambda one: resource_words(one.resources), wide=True),
        Column("COST", lambda one: costs_in_words([one.cost]) if one.cost else "", wide=True),
        Column("REASON", lambda one: f"{one.reason.code.value}: {local_sentence(one.reason.detail)}", wide=True),
    ),
)

SLOT: "View[FreeSlotOut]" = View(
    name=lambda slot: f"{slot.gpu_type} {slot.start:%Y-%m-%dT%H:%MZ}",
    columns=(
        Column("TYPE", lambda slot: slot.gpu_type),
        Column("EARLIEST START", lambda slot: minute(slot.start)),
        Column("LATEST START", lambda slot: minute(slot.latest_start)),
        Column("EARLIEST END", lambda slot: minute(slot.end)),
    ),
    empty="Nothing free in that time. Try a longer --to, another --type, fewer --gpus or a shorter --for.",
)

FEED: "View[FeedCreated]" = View(
    name=lambda feed: feed.path or "", columns=(Column("PATH", lambda feed: feed.path or ""),)
)


def is_over(limit: "LimitOut") -> bool:
    """Whether more is used than the limit."""
    return isinstance(limit.value, int | float) and limit.used is not None and limit.used > limit.value


def limit_of(limit: "LimitOut") -> str:
    """The limit itself, in words."""
    return "no limit" if limit.value is None else _rule_value(limit.value)


def _in_use(limit: "LimitOut") -> str:
    if limit.used is None:
        return ""
    return f"{amount(limit.used)}, over" if is_over(limit) else amount(limit.used)


LIMIT: "View[LimitOut]" = View(
    name=lambda limit: limit.rule,
    columns=(
        Column("RULE", lambda limit: limit.rule),
        Column("LIMIT", limit_of),
        Column("IN USE", _in_use, right=True),
        Column("SCOPE", lambda limit: limit.scope),
    ),
    empty="No limits apply to it.",
)


def format_rules(rules: "RulesIn") -> str:
    """Rules in one line, with values as they are typed: `max_gpus=4, max_duration=7d`."""
    return ", ".join(f"{name}={_rule_value(value)}" for name, value in as_data(rules).items() if value is not None)


def _rule_value(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return amount(value)
        case str():
            length = plain_iso8601(value)
            return value if length is None else format_duration(length)
        case dict():
            lengths = (_rule_value(value[name]) for name in ("window", "grace"))
            return ",".join((f"{round(100 * value['below'], 1):g}%", *lengths, value["then"]))
        case list():
            return "; ".join(f"{_rule_value(one['within'])} lifts {' '.join(one['lifts'])}" for one in value)
        case _:
            return str(value)


RULE: "View[RuleOut]" = View(
    name=lambda rule: rule.scope,
    columns=(
        Column("SCOPE", lambda rule: rule.scope),
        Column("RULES", lambda rule: format_rules(rule.rules)),
        Column("CHANGED", lambda rule: local_time(rule.changed_at)),
        Column("BY", lambda rule: rule.changed_by),
    ),
    empty="There are no rules: everything is allowed that fits.",
)


def _named(found: "Named") -> str:
    more = " …" if found.count > len(found.names) else ""
    return f"{found.count}: {' '.join(found.names)}{more}" if found.count else "0"


POLICY_VERDICT: "View[PolicyVerdict]" = View(
    name=lambda verdict: verdict.scope,
    columns=(
        Column("SCOPE", lambda verdict: verdict.scope),
        Column("RULES WOULD BE", lambda verdict: format_rules(verdict.rules)),
        Column("USERS AFFECTED", lambda verdict: _named(verdict.users)),
        Column("PROJECTS AFFECTED", lambda verdict: _named(verdict.projects)),
        Column("RUNNING, WOULD NOW BE REFUSED", lambda verdict: _named(verdict.running)),
        Column("BOOKED, WOULD NOW BE REFUSED", lambda verdict: _named(verdict.bookings)),
        Column("WOULD WAIT FOR EVER", lambda verdict: _named(verdict.waiting)),
        Column(
            "BROKEN RULES", lambda verdict: ", ".join(f"{name} {count}" for name, count in verdict.broken_rules.items())
        ),
    ),
)

PROJECT: "View[ProjectOut]" = View(
    name=lambda project: project.name,
    columns=(
        Column("NAME", lambda project: project.name),
        Column("TITLE", lambda project: project.title or ""),
        Column("MEMBERS", lambda project: ",".join(project.members)),
        Column("CREATED", lambda project: local_time(project.created_at), wide=True),
    ),
    empty="No projects.",
)

USAGE_LINE: "View[UsageLineOut]" = View(
    name=lambda line: line.key or "",
    columns=(
        Column("NAME", lambda line: line.key or "(no project)"),
        Column("HELD GPU-H", lambda line: f"{line.held_gpu_hours:.2f}", right=True),
        Column("USED", lambda line: f"{line.used_gpu_hours:.2f}", right=True),
        Column("IDLE", lambda line: f"{line.idle_gpu_hours:.2f}", right=True),
        Column("WASTED", lambda line: f"{line.wasted_gpu_hours:.2f}", right=True),
    ),
    empty="Nothing was held in that time.",
)
USAGE_UTILISED: "tuple[Column[UsageLineOut], ...]" = (
    Column("UTILISED", lambda line: "no data" if line.utilised is None else f"{line.utilised:.0%}", right=True),
    Column(
        "MEMORY PEAK",
        lambda line: "no data" if line.memory_peak is None else memory_figure(line.memory_peak, None),
        right=True,
    ),
)
"""Shown where there is data of any line."""
USAGE_COST: "Column[UsageLineOut]" = Column("COST", lambda line: costs_in_words(line.costs), right=True)

WINDOW: "View[MaintenanceOut]" = View(
    name=lambda window: window.id or "",
    columns=(
        Column("ID", lambda window: window.id or ""),
        Column("STATUS", lambda window: window_status(window.status) if window.status else "not planned yet"),
        Column("START", lambda window: minute(window.start)),
        Column("END", lambda window: minute(window.end)),
        Column("GPUS", places),
        Column("REASON", lambda window: window.reason),
        Column("BY", lambda window: window.created_by),
    ),
    empty="No maintenance is planned.",
)

AFFECTED: "View[AffectedOut]" = View(
    name=lambda one: one.id,
    columns=(
        Column("ID", lambda one: one.id),
        Column("USER", lambda one: one.user),
        Column("EFFECT", becomes),
    ),
    empty="It affects no job and no booking.",
)

TARGET: "View[NoticeTargetOut]" = View(
    name=lambda target: target.id,
    columns=(
        Column("ID", lambda target: target.id),
        Column("CHANNEL", lambda target: target.channel.value),
        Column("ADDRESS", lambda target: target.address),
        Column("STATUS", lambda target: target.status.value),
        Column("NAME", lambda target: target.name or ""),
        Column("LAST DELIVERED", lambda target: local_time(target.delivered_at)),
        Column("LAST FAILURE", lambda target: target.failure or ""),
        Column("USER", lambda target: target.user, wide=True),
    ),
    empty="You have no notification address. How to add one: gpu-dev notify add -h",
)
