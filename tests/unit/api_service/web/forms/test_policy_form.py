"""Forms of rules, read and drawn: what is drawn says the same when it is sent as it is."""

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_service.web.forms.form import Form
from api_service.web.forms.policy_form import (
    LIFTED,
    RULES,
    ValueKind,
    changed_rules,
    exceptions_of,
    exceptions_typed,
    fields_of,
    rule_label,
    rule_texts,
    typed_rules,
)
from reservation_core.contracts.policy import IdleRuleIn, RelaxationIn, RulesIn
from reservation_core.domain.gpu_use.idle_rules import IdleThen
from reservation_core.domain.policy.nouns import LIFTABLE, QueueOrder, RuleName
from reservation_core.domain.policy.prices import PRICE_PATTERN


def form(*fields: tuple[str, str], **more: str) -> Form:
    return Form(parse_qs(urlencode([*fields, *more.items()]), keep_blank_values=True))


def lengths(longest: timedelta = timedelta(days=400), shortest: timedelta = timedelta(0)) -> Any:
    whole = st.integers(int(shortest.total_seconds()), int(longest.total_seconds())).map(lambda s: timedelta(seconds=s))
    return st.one_of(whole, st.timedeltas(min_value=shortest, max_value=longest))


def or_unsaid(values: Any) -> Any:
    return st.one_of(st.none(), st.just("unlimited"), values)


RULES_SAID = st.builds(
    RulesIn,
    max_gpus=or_unsaid(st.integers(0, 1_048_576)),
    max_gpu_hours_per_week=or_unsaid(st.floats(0, 1e9).filter(lambda value: value == 0 or value > 1e-4)),
    max_duration=or_unsaid(lengths(shortest=timedelta(seconds=1))),
    max_advance=or_unsaid(lengths()),
    min_notice=or_unsaid(lengths()),
    max_open_bookings=or_unsaid(st.integers(0, 100_000)),
    cooldown=or_unsaid(lengths()),
    priority=or_unsaid(st.integers(-1000, 1000)),
    no_show_grace=or_unsaid(lengths(shortest=timedelta(minutes=1))),
    relaxed_if_starts_within=st.one_of(
        st.none(),
        st.lists(
            st.builds(RelaxationIn, within=lengths(), lifts=st.sets(st.sampled_from(sorted(LIFTABLE)), min_size=1)),
            max_size=20,
        ),
    ),
    booking_required=st.one_of(st.none(), st.booleans()),
    cost_per_gpu_hour=st.one_of(st.none(), st.from_regex(PRICE_PATTERN, fullmatch=True)),
    order=st.one_of(st.none(), st.sampled_from(QueueOrder)),
    idle=or_unsaid(
        st.builds(
            IdleRuleIn,
            below=st.integers(1, 1000).map(lambda thousandths: thousandths / 1000),
            window=st.integers(60, 86_400).map(lambda s: timedelta(seconds=s)),
            grace=st.integers(60, 86_400).map(lambda s: timedelta(seconds=s)),
            then=st.sampled_from(IdleThen),
        )
    ),
)


@given(RULES_SAID)
def test_what_is_drawn_and_sent_as_it_is_says_the_same(rules: RulesIn) -> None:
    rows = exceptions_of(rules)
    fields = [*fields_of(rules).items(), *((f"within_{row.number}", row.within) for row in rows)]
    sent = form(*fields, *((f"lifts_{row.number}", name) for row in rows for name in row.lifts))
    typed = typed_rules(sent)
    if rules.rules().is_empty:
        assert list(typed.wrong) == [""]
    else:
        assert not typed.wrong
        assert RulesIn.model_validate(typed.body).rules() == rules.rules()
        assert exceptions_typed(sent) == rows
    assert not changed_rules(rules, rules)
    assert bool(rule_texts(rules)) == (not rules.rules().is_empty)


@given(RULES_SAID, RULES_SAID)
def test_a_change_is_told_wherever_there_is_one(before: RulesIn, after: RulesIn) -> None:
    names = [name for name in RULES if getattr(before, name) != getattr(after, name)]
    told = {change.words for change in changed_rules(before, after)}
    # What differs by less than a second, or by a digit that is not shown, may look the same.
    assert told >= {RULES[name].words for name in names if RULES[name].kind is ValueKind.NUMBER}
    assert told <= {
        RULES[name].words for name in names
    } | {words for words in told if words.startswith(("Bookings that", "Exceptions", "Pods that"))}  # fmt: skip


def test_every_rule_has_its_words() -> None:
    assert set(RULES) == set(RuleName)
    assert set(LIFTED) == set(LIFTABLE)
    assert rule_label("max_gpus") == "GPUs at once"
    assert rule_label("no_such_project") == "no such project"


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("max_gpus", "many", "GPUs at once: write a whole number, such as 8, or unlimited."),
        ("max_gpus", "1.5", "whole number"),
        ("max_gpus", "-1", "GPUs at once: it has to be at least 0."),
        ("max_gpus", "٣", "whole number"),
        ("max_gpu_hours_per_week", "1e3", "number of hours"),
        ("idle", "soon", "Idle GPUs of jobs: write how little use is idle"),
        ("idle", "10%,1s,30m,release", "Idle GPUs of jobs: both times can be from 1m to 1d."),
        ("idle", "10%,1h,2d", "both times can be from 1m to 1d"),
        ("max_gpu_hours_per_week", "9999999999", "at most 1000000000."),
        ("max_duration", "a week", "write a time, such as 7d"),
        ("max_duration", "0s", "from 1s to 400d"),
        ("max_advance", "500d", "from 0s to 400d"),
        ("max_advance", "999999999w", "from 0s to 400d"),
        ("max_advance", "PTT", "from 0s"),
        ("no_show_grace", "10s", "from 1m to 400d"),
        ("priority", "5000", "at most 1000"),
        ("cost_per_gpu_hour", "unlimited", "Cost of a GPU-hour: write an amount and its unit, such as 2.50 EUR."),
        ("cost_per_gpu_hour", "2,50 EUR", "an amount and its unit"),
        ("cost_per_gpu_hour", "1000000 EUR", "an amount and its unit"),
        ("order", "size", "Order of waiting jobs: choose an order."),
        ("order", "unlimited", "Order of waiting jobs: choose an order."),
    ],
)
def test_what_cannot_be_sent_is_said_of_its_field(field: str, value: str, told: str) -> None:
    typed = typed_rules(form((field, value)))
    assert list(typed.wrong) == [field]
    assert told in typed.wrong[field]


def test_a_price_needs_no_space_before_its_unit() -> None:
    assert typed_rules(form(("cost_per_gpu_hour", "2.50€"))).body == {"cost_per_gpu_hour": "2.50 €"}


def test_exceptions_are_told_whole_or_not_at_all() -> None:
    assert typed_rules(form(("within_3", "2h"), ("lifts_3", "max_gpus"), ("lifts_3", "cooldown"))).body == {
        "relaxed_if_starts_within": [{"within": 7200, "lifts": ["max_gpus", "cooldown"]}]
    }
    assert typed_rules(form(no_exceptions="yes")).body == {"relaxed_if_starts_within": []}
    assert "within_0" in typed_rules(form(("within_0", "2h"))).wrong
    assert "within_0" in typed_rules(form(("lifts_0", "max_gpus"))).wrong
    assert "within_0" in typed_rules(form(("within_0", "soon"), ("lifts_0", "max_gpus"))).wrong
    both = typed_rules(form(("within_0", "2h"), ("lifts_0", "max_gpus"), ("no_exceptions", "yes")))
    assert list(both.wrong) == ["no_exceptions"]


def test_rules_are_said_in_words() -> None:
    rules = RulesIn(
        max_gpus=4,
        max_gpu_hours_per_week=1e9,
        max_duration="unlimited",
        cooldown=timedelta(days=365),
        relaxed_if_starts_within=[RelaxationIn(within=timedelta(hours=2), lifts=[RuleName.COOLDOWN])],
        booking_required=False,
    )
    assert [(rule_words.words, rule_words.value) for rule_words in rule_texts(rules)] == [
        ("GPUs at once", "4"),
        ("GPU-hours in a week", "1000000000"),
        ("Longest job or booking", "no limit"),
        ("Pause between two bookings", "365d"),
        ("Bookings that start within 2h are not bound by", "Pause between two bookings"),
        ("Pods that others create use GPUs", "without one, too"),
    ]
    assert next((change.before, change.after) for change in changed_rules(RulesIn(max_gpus=8), rules)) == ("8", "4")
    assert changed_rules(None, RulesIn(max_gpus=8))[0].before is None
