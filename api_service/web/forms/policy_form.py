"""The rules of a scope as a form: its input as a request body, and stored rules as input.

An empty field means no rule; `unlimited` lifts the limits of less specific scopes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from api_service.web.forms.form import Form
from reservation_core.contracts.policy import LONGEST, IdleRuleIn, RulesIn
from reservation_core.domain.gpu_use.idle_rules import LEAST as LEAST_IDLE
from reservation_core.domain.gpu_use.idle_rules import LONGEST as LONGEST_IDLE
from reservation_core.domain.gpu_use.idle_rules import IdleRule, typed_idle
from reservation_core.domain.policy.nouns import LIFTABLE, QueueOrder, RuleName
from reservation_core.domain.policy.prices import typed_price
from reservation_core.domain.short_durations import seconds_in, written

NO_LIMIT = "unlimited"
BOOKING_REQUIRED = "booking_required"
NO_EXCEPTIONS = "no_exceptions"
_EXCEPTIONS = "relaxed_if_starts_within"
_MOST_EXCEPTIONS = 20
_ISO = re.compile(r"P[0-9TYDHMSW.]{2,30}", re.IGNORECASE)
_WHOLE = re.compile(r"-?\d{1,9}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,12}(?:\.\d{1,20})?", re.ASCII)


class ValueKind(StrEnum):
    NUMBER = "number"
    HOURS = "hours"
    LENGTH = "length"
    PRICE = "price"
    ORDER = "order"
    IDLE = "idle"


Read = int | float | str | dict[str, float | str]
"""The value of a field for REST."""
RuleValue = int | float | timedelta | str | IdleRuleIn


@dataclass(frozen=True, slots=True)
class RuleWords:
    """A rule's label, how its value is written, its hint, and its shortest time."""

    words: str
    kind: ValueKind
    hint: str
    shortest: timedelta = timedelta(0)


RULES: Mapping[RuleName, RuleWords] = {
    RuleName.MAX_GPUS: RuleWords("GPUs at once", ValueKind.NUMBER, "A number: 8. Jobs and bookings together."),
    RuleName.MAX_GPU_HOURS_PER_WEEK: RuleWords(
        "GPU-hours in a week", ValueKind.HOURS, "A number of hours: 400. Of jobs and bookings, from Monday 00:00 UTC."
    ),
    RuleName.MAX_DURATION: RuleWords(
        "Longest job or booking", ValueKind.LENGTH, "A time: 7d, 12h, 90m.", timedelta(seconds=1)
    ),
    RuleName.PRIORITY: RuleWords("Highest priority of a job", ValueKind.NUMBER, "A number: 10. Without a rule, 0."),
    RuleName.MAX_ADVANCE: RuleWords("How far ahead a booking may start", ValueKind.LENGTH, "A time: 28d."),
    RuleName.MIN_NOTICE: RuleWords("How long before its start it has to be booked", ValueKind.LENGTH, "A time: 1h."),
    RuleName.MAX_OPEN_BOOKINGS: RuleWords(
        "Open bookings", ValueKind.NUMBER, "A number: 5. Bookings that are not over, and requests on the waitlist."
    ),
    RuleName.COOLDOWN: RuleWords(
        "Pause between two bookings", ValueKind.LENGTH, "A time: 4h. Between the end of one and the start of the next."
    ),
    RuleName.NO_SHOW_GRACE: RuleWords(
        "Given back when unused for",
        ValueKind.LENGTH,
        "A time: 30m. unlimited: never before its end.",
        timedelta(minutes=1),
    ),
    RuleName.INACTIVITY: RuleWords(
        "Sessions end without a connection after",
        ValueKind.LENGTH,
        "A time: 2h. unlimited: a session lasts to its end.",
        timedelta(minutes=1),
    ),
    RuleName.COST_PER_GPU_HOUR: RuleWords(
        "Cost of a GPU-hour", ValueKind.PRICE, "An amount and its unit: 2.50 EUR, 1 credit. Shown with usage."
    ),
    RuleName.ORDER: RuleWords(
        "Order of waiting jobs",
        ValueKind.ORDER,
        "Among jobs of equal priority and share. A job that waits long goes before what came later.",
    ),
    RuleName.IDLE: RuleWords(
        "Idle GPUs of jobs",
        ValueKind.IDLE,
        "Such as 10%,1h,30m,release: when GPUs are used less than 10% for 1h, their job's owner is warned, and the job "
        "ends 30m later. With warn in place of release no job ends.",
    ),
}
"""Every rule with a value, in the order of the form."""

ORDERS: Mapping[QueueOrder, str] = {
    QueueOrder.AREA: "smaller jobs first",
    QueueOrder.ARRIVAL: "first come, first served",
}
"""The orders of waiting jobs in words."""

LIFTED: Mapping[RuleName, str] = {name: rule.words for name, rule in RULES.items() if name in LIFTABLE}
"""The labels of the rules that exceptions may lift."""


@dataclass(frozen=True, slots=True)
class TypedRules:
    """A body for PUT /v1/policy/SCOPE, as far as the input could be read; `wrong` says by field what could not."""

    body: dict[str, Any]
    wrong: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TypedException:
    """A row of the form: the rules in `lifts` do not bind bookings that start `within` this time."""

    number: int
    within: str
    lifts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleText:
    """One rule of a scope, for a person: `GPUs at once`, `8`."""

    words: str
    value: str


@dataclass(frozen=True, slots=True)
class RuleEdit:
    """One changed rule; None where there is no rule."""

    words: str
    before: str | None
    after: str | None


def typed_rules(form: Form) -> TypedRules:
    """Read the form. REST decides whether the rules are allowed."""
    body: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for name, rule in RULES.items():
        value = form.get(name)
        if value is None:
            continue
        can_lift = rule.kind not in (ValueKind.PRICE, ValueKind.ORDER)
        read = NO_LIMIT if can_lift and value.lower() == NO_LIMIT else _read(rule.kind, value)
        if read is None:
            wrong[name] = f"{rule.words}: {_how(rule.kind)}{', or unlimited' if can_lift else ''}."
        elif (refused := _refused(name, read)) is not None:
            wrong[name] = f"{rule.words}: {refused}."
        else:
            body[name.value] = read
    exceptions = _exceptions(form, wrong)
    if form.has(NO_EXCEPTIONS) and exceptions:
        wrong[NO_EXCEPTIONS] = "Fill in exceptions or tick “No exceptions”, not both."
    if exceptions or form.has(NO_EXCEPTIONS):
        body[_EXCEPTIONS] = exceptions
    required = form.get(BOOKING_REQUIRED)
    if required is not None:
        body[BOOKING_REQUIRED] = required == "yes"
    if not body and not wrong:
        wrong[""] = "No rule is set here. Set one, or delete the rules."
    return TypedRules(body, wrong)


def fields_of(rules: RulesIn | None) -> dict[str, str]:
    """The fields for stored rules; `exceptions_of` has the exceptions."""
    if rules is None:
        return {}
    found = {name.value: _typed(value) for name in RULES if (value := getattr(rules, name.value)) is not None}
    if rules.booking_required is not None:
        found[BOOKING_REQUIRED] = "yes" if rules.booking_required else "no"
    if rules.relaxed_if_starts_within == []:
        found[NO_EXCEPTIONS] = "yes"
    return found


def exceptions_of(rules: RulesIn | None) -> list[TypedException]:
    """The rows of a scope's exceptions, and an empty one where there can be more."""
    relaxed = [] if rules is None else rules.relaxed_if_starts_within or []
    return _with_an_empty_one(
        TypedException(number, _typed(relaxation.within), tuple(sorted(relaxation.lifts)))
        for number, relaxation in enumerate(relaxed)
    )


def exceptions_typed(form: Form) -> list[TypedException]:
    """The submitted rows without empty ones, and an empty one."""
    rows = ((form.get(f"within_{number}"), form.all(f"lifts_{number}")) for number in range(_MOST_EXCEPTIONS))
    filled = [(within or "", tuple(lifts)) for within, lifts in rows if within is not None or lifts]
    return _with_an_empty_one(TypedException(number, *row) for number, row in enumerate(filled))


def rule_texts(rules: RulesIn) -> list[RuleText]:
    """All rules of a scope, in the order of the form."""
    found = [
        RuleText(rule.words, "no limit" if value == NO_LIMIT else _worded(value))
        for name, rule in RULES.items()
        if (value := getattr(rules, name.value)) is not None
    ]
    if rules.relaxed_if_starts_within == []:
        found.append(RuleText("Exceptions for bookings that start soon", "none"))
    for relaxation in rules.relaxed_if_starts_within or []:
        lifted = ", ".join(LIFTED[name] for name in RULES if name in relaxation.lifts)
        found.append(RuleText(f"Bookings that start within {_typed(relaxation.within)} are not bound by", lifted))
    if rules.booking_required is not None:
        found.append(
            RuleText(
                "Pods that others create use GPUs",
                "only with a booking" if rules.booking_required else "without one, too",
            )
        )
    return found


def changed_rules(before: RulesIn | None, after: RulesIn) -> list[RuleEdit]:
    """The rules that differ."""
    was = {} if before is None else _by_words(before)
    will = _by_words(after)
    return [
        RuleEdit(words, was.get(words), will.get(words))
        for words in dict.fromkeys([*was, *will])
        if was.get(words) != will.get(words)
    ]


def rule_label(code: str) -> str:
    """The label of a rule that a refusal names."""
    try:
        return RULES[RuleName(code)].words
    except ValueError:
        return code.replace("_", " ")


def _by_words(rules: RulesIn) -> dict[str, str]:
    found: dict[str, str] = {}
    for rule_words in rule_texts(rules):
        # Two exceptions for the same time are one line.
        found[rule_words.words] = (
            f"{found[rule_words.words]}; {rule_words.value}" if rule_words.words in found else rule_words.value
        )
    return found


def _exceptions(form: Form, wrong: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in exceptions_typed(form):
        if not row.within and not row.lifts:
            continue
        within = _read(ValueKind.LENGTH, row.within)
        if within is None:
            wrong[f"within_{row.number}"] = f"Say how soon bookings of this exception start: {_how(ValueKind.LENGTH)}."
        elif not row.lifts:
            wrong[f"within_{row.number}"] = "Tick the rules that do not bind these bookings, or empty the time."
        else:
            found.append({"within": within, "lifts": list(row.lifts)})
    return found


def _with_an_empty_one(rows: Iterable[TypedException]) -> list[TypedException]:
    found = list(rows)
    return found if len(found) >= _MOST_EXCEPTIONS else [*found, TypedException(len(found), "", ())]


def _read(kind: ValueKind, value: str) -> Read | None:
    match kind:
        case ValueKind.NUMBER:
            return int(value) if _WHOLE.fullmatch(value) else None
        case ValueKind.HOURS:
            return float(value) if _DECIMAL.fullmatch(value) else None
        case ValueKind.LENGTH:
            return value.upper() if _ISO.fullmatch(value) else seconds_in(value)
        case ValueKind.PRICE:
            return typed_price(value)
        case ValueKind.ORDER:
            return value if value in list(QueueOrder) else None
        case ValueKind.IDLE:
            return _read_idle(value)


def _read_idle(value: str) -> dict[str, float | str] | None:
    idle = typed_idle(value)
    if idle is None:
        return None
    return {
        "below": idle.below,
        "window": idle.window.total_seconds(),
        "grace": idle.grace.total_seconds(),
        "then": idle.then.value,
    }


def _refused(name: RuleName, value: Read) -> str | None:
    """Why REST would refuse a value, once: REST says so for each way to write it."""
    try:
        RulesIn.model_validate({name.value: value})
    except ValidationError as error:
        if RULES[name].kind is ValueKind.LENGTH:
            return f"it can be from {_typed(RULES[name].shortest)} to {_typed(LONGEST)}"
        if RULES[name].kind is ValueKind.IDLE:
            return f"both times can be from {_typed(LEAST_IDLE)} to {_typed(LONGEST_IDLE)}"
        bounds = error.errors()[0].get("ctx", {})
        return f"it has to be at least {bounds['ge']}" if "ge" in bounds else f"it can be at most {bounds['le']:.0f}"
    return None


def _how(kind: ValueKind) -> str:
    match kind:
        case ValueKind.NUMBER:
            return "write a whole number, such as 8"
        case ValueKind.HOURS:
            return "write a number of hours, such as 400"
        case ValueKind.LENGTH:
            return "write a time, such as 7d, 12h or 90m"
        case ValueKind.PRICE:
            return "write an amount and its unit, such as 2.50 EUR"
        case ValueKind.ORDER:
            return "choose an order"
        case ValueKind.IDLE:
            return "write how little use is idle, two times and what follows, such as 10%,1h,30m,release"


def _worded(value: RuleValue) -> str:
    return ORDERS[value] if isinstance(value, QueueOrder) else _typed(value)


def _typed(value: RuleValue) -> str:
    match value:
        case timedelta():
            return written(value) if not value.microseconds else f"PT{value.total_seconds():f}S"
        case IdleRuleIn():
            return str(IdleRule(value.below, value.window, value.grace, value.then))
        case float():
            return f"{Decimal(str(value)).normalize():f}"
        case _:
            return str(value)
