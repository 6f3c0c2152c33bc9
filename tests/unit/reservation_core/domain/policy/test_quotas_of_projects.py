"""Quotas of projects: what all members have for it counts, and nothing else does."""

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import length_micros, to_micros
from reservation_core.domain.plan import Asker, Waiting
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_meters import Amount
from reservation_core.domain.policy.quota_windows import Held, peak
from reservation_core.domain.policy.rule_words import moment_text
from reservation_core.domain.policy.rules import Holding, RuleRequest, UsageView, check
from reservation_core.domain.statuses import ReasonCode, ReservationKind
from tests.examples import examples
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, at

NAMES = {1: "ann", 2: "bob", 3: "eve"}
OF_PROJECT, OF_PROJECT_A, OF_ANN, OF_ALL = 5, 3, 4, 6
POLICY = Policy(
    [
        PolicyRule(Scope(project="vision"), Rules(max_gpus=OF_PROJECT)),
        PolicyRule(Scope(project="vision", gpu_type="a"), Rules(max_gpus=OF_PROJECT_A)),
        PolicyRule(Scope(user="ann"), Rules(max_gpus=OF_ANN)),
        PolicyRule(Scope(), Rules(max_gpus=OF_ALL)),
    ]
)
PROJECTS = st.sampled_from([None, "vision", "speech"])
JOBS = st.lists(
    st.tuples(st.integers(1, 3), PROJECTS, st.integers(1, 4), st.integers(1, 90), st.sampled_from("ab")), max_size=12
).map(
    lambda found: [
        Waiting(f"job-{n}", gpus, 1, gpu_type, minutes * MINUTE, 0, n, owner=owner, project=project)
        for n, (owner, project, gpus, minutes, gpu_type) in enumerate(found)
    ]
)
HELD = st.lists(
    st.tuples(
        st.sampled_from(list(NAMES.values())),
        PROJECTS,
        st.sampled_from("ab"),
        st.integers(1, 2),
        st.integers(-60, 60),
        st.integers(1, 90),
    ),
    max_size=6,
).map(
    lambda found: [
        Holding(f"h-{n}", ReservationKind.JOB, user, project, gpu_type, gpus, at(start), at(start + length))
        for n, (user, project, gpu_type, gpus, start, length) in enumerate(found)
    ]
)


def fits(held: list[Holding], asked: Holding, limit: int) -> bool:
    """Whether as many more stay within a limit beside these at every instant."""
    rows = [Held(holding.gpus, holding.start, holding.end) for holding in held]
    return peak(rows, asked.start, asked.end) + asked.gpus <= limit


def allowed(held: list[Holding], asked: Holding) -> bool:
    """What the rules above say, written out."""
    mine = [holding for holding in held if holding.user == asked.user]
    ours = [holding for holding in held if holding.project == "vision"]
    of_type = [holding for holding in ours if holding.gpu_type == "a"]
    if asked.project == "vision":
        # The narrower rule of the project takes the place of its wider one.
        of_project = fits(of_type, asked, OF_PROJECT_A) if asked.gpu_type == "a" else fits(ours, asked, OF_PROJECT)
        return of_project and (asked.user != "ann" or fits(mine, asked, OF_ANN))
    return fits(mine, asked, OF_ANN if asked.user == "ann" else OF_ALL)


@examples(500)
@given(JOBS, HELD)
def test_who_is_in_stays_within_the_quotas_of_projects_and_only_then(jobs: list[Waiting], held: list[Holding]) -> None:
    quotas = QuotaBook(POLICY, NAMES)
    quotas.note_held(held)
    now = to_micros(T0)
    for job in jobs:
        assert job.gpu_type is not None
        asked = Holding(
            job.id, ReservationKind.JOB, NAMES[job.owner], job.project, job.gpu_type, job.gpus, T0, T0 + job.length
        )
        asker = Asker(job.owner, job.project, job.gpu_type)
        length = length_micros(job.length)
        reason = quotas.why_not(asker, job.gpus, length, now)
        assert (quotas.earliest(asker, job.gpus, length, now) == now) == (reason is None)
        assert (reason is None) == allowed(held, asked), (job, reason)
        if reason is None:
            held = [*held, asked]
            quotas.claim(job.id, asker, Amount(job.gpus, now, now + length))
            # What it has itself does not count.
            assert quotas.earliest(asker, job.gpus, length, now, job.id) == now
        else:
            assert reason.code is ReasonCode.QUOTA_REACHED
            assert ("project vision" in reason.detail) or job.project != "vision" or job.owner == 1


def test_whom_no_quota_bounds_is_looked_at_no_further() -> None:
    quotas = QuotaBook(Policy([PolicyRule(Scope(project="vision"), Rules(max_gpus=0))]), NAMES)
    assert [quotas.binds(Asker(1, project, "a")) for project in (None, "speech", "vision")] == [False, False, True]
    assert quotas.earliest(Asker(1, "vision", "a"), 1, 1, 0) is None
    # Of whom no name is known nothing is.
    assert not quotas.binds(Asker(4, "vision", "a"))


def test_what_other_members_were_promised_is_counted_and_not_named() -> None:
    def promised(name: str, user: str) -> Holding:
        return Holding(name, ReservationKind.JOB, user, "vision", "b", 2, at(10), at(90), planned=True)

    def said(*slots: Holding) -> str:
        request = RuleRequest(
            kind=ReservationKind.BOOKING,
            user="ann",
            gpus=2,
            duration=30 * MINUTE,
            gpu_type="b",
            project="vision",
            start=at(20),
        )
        [broken] = check(request, POLICY, UsageView(slots, ()), T0)
        return broken.detail

    assert "4 of them promised to job-a and others;" in said(promised("job-a", "ann"), promised("job-b", "bob"))
    assert "4 of them promised to others;" in said(promised("job-b", "bob"), promised("job-e", "eve"))


def test_no_more_are_said_to_be_promised_than_are_held_at_that_time() -> None:
    """Slots one after another are held one after another."""
    slots = [
        Holding(
            f"job-{number}",
            ReservationKind.JOB,
            "ann",
            "vision",
            "b",
            2,
            at(20 * number),
            at(20 * number + 20),
            planned=True,
        )
        for number in range(1, 6)
    ]
    running = Holding("job-r", ReservationKind.JOB, "ann", "vision", "b", 1, at(0), at(60))
    request = RuleRequest(
        kind=ReservationKind.BOOKING,
        user="ann",
        gpus=4,
        duration=80 * MINUTE,
        gpu_type="b",
        project="vision",
        start=at(20),
    )
    broken = check(request, POLICY, UsageView((running, *slots), ()), T0)
    assert broken
    for breach in broken:
        since = f"from {moment_text(at(20))} on, 2 of them promised to job-1; the limit"
        whose = "project vision" if "(project" in breach.detail else "the same user"
        assert f" beside 3 of {whose} {since}" in breach.detail
