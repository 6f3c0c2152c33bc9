"""How long jobs wait: public traces through the product's planner in virtual time, and through other rules.

`philly`: four virtual clusters of Microsoft's Philly trace on nodes of 8 GPUs (the last may have fewer), of the sizes
that give the loads in which the trace was recorded. The trace has no users and no estimates: each job asks for the next
of STEPS above its running time x U(1, 3), by the round's seed, and belongs to one of 20 users, the first of whom submit
most. `WAITS_ROUNDS` sets the number of seeds, `WAITS_CLUSTERS` names some of the clusters, `WAITS_NODE` sets another
size of nodes, `WAITS_SLACK` hours of slack to be tried besides, such as `1,24`, `WAITS_PLOT` a file for curves of the
first round, as SVG. A trace whose users and estimates are known
goes through `gpu-dev simulate`. One cluster, LENT, is played with preemptible jobs as well.
"""

import csv
import os
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from benchmarks.measuring.figures import Figure
from benchmarks.waiting import preemptible as waits_preemptible
from benchmarks.waiting.plot import draw
from benchmarks.waiting.references import EASY, EASY_SMALL, FIRST, REFERENCES, Asked, waits_of
from reservation_core.domain.model import Node
from reservation_core.domain.planning.standings import BY_AREA, BY_ARRIVAL, Orders
from reservation_core.domain.simulation.replay import Replay, TraceJob
from reservation_core.domain.simulation.trace_rows import TraceRow, read_row
from reservation_core.domain.simulation.traces import cluster, jobs_of, lasted
from reservation_core.domain.simulation.waits import Ended, Waits, ended, summary

CLUSTERS = {"103959": 24, "ee9e8c": 160, "0e4a51": 40, "6c71a0": 44}
"""GPUs of each."""

LENT = "103959"
"""The cluster that is played with preemptible jobs as well."""

HOURS = (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 96, 168, 336, 720, 1440)
STEPS = tuple(timedelta(hours=hours) for hours in HOURS)
USERS = 20
FAIR = timedelta(days=7)
"""The half-life of fair shares."""

FOLDER_VARIABLE = "PHILLY_FOLDER"
_FOLDER = Path(__file__).parents[2] / "shared" / "data" / "philly"

ARRIVAL = "slots, by arrival"
AREA = "slots, small first"
FAIR_ARRIVAL = "the same by arrival, fair shares"
FAIR_AREA = "the same small first, fair shares"
NONE = timedelta(0)
RULES = {
    ARRIVAL: (BY_ARRIVAL, None, NONE),
    AREA: (BY_AREA, None, NONE),
    FAIR_ARRIVAL: (BY_ARRIVAL, FAIR, NONE),
    FAIR_AREA: (BY_AREA, FAIR, NONE),
    **{
        f"small first, {hours} h of slack": (BY_AREA, None, timedelta(hours=float(hours)))
        for hours in os.environ.get("WAITS_SLACK", "").split(",")
        if hours
    },
}


def measure() -> list[Figure]:
    """A table for each cluster, and the figures that have a target."""
    rounds = int(os.environ.get("WAITS_ROUNDS", "1"))
    node_size = int(os.environ.get("WAITS_NODE", "8"))
    figures: list[Figure] = []
    panels: dict[str, dict[str, Sequence[float]]] = {}
    for name in os.environ.get("WAITS_CLUSTERS", ",".join(CLUSTERS)).split(","):
        played = [_round(name, seed, node_size) for seed in range(rounds)]
        title = f"{name}: {CLUSTERS[name]} GPUs, {played[0][AREA].jobs} jobs"
        panels[title] = {rule: played[0][rule].waits for rule in (FIRST, EASY, ARRIVAL, AREA)}
        _print_table(title, played)
        figures += _figures(name, played)
        if name == LENT:
            lent = [waits_preemptible.lent(*_played_on(name, seed, node_size), seed) for seed in range(rounds)]
            figures += waits_preemptible.figures(name, lent)
    if "WAITS_PLOT" in os.environ:
        Path(os.environ["WAITS_PLOT"]).write_text(draw(panels))
    return figures


def trace(name: str, seed: int) -> list[TraceRow]:
    """A virtual cluster's jobs with users and estimates. SystemExit with what to do where there is no trace."""
    folder = Path(os.environ.get(FOLDER_VARIABLE, _FOLDER))
    if not (folder / f"{name}.csv").exists():
        raise SystemExit(
            f"There is no {name}.csv in {folder}. Set {FOLDER_VARIABLE} to the folder with Philly's traces."
        )
    chance = random.Random(seed)
    with (folder / f"{name}.csv").open() as lines:
        rows = [read_row(number, row) for number, row in enumerate(csv.DictReader(lines), start=2)]
    weights = [1 / (1 + number) for number in range(USERS)]
    return [
        TraceRow(
            row.submitted_at,
            row.ran,
            row.gpus,
            asked=next((step for step in STEPS if step >= row.ran * chance.uniform(1, 3)), STEPS[-1]),
            user=f"user-{chance.choices(range(USERS), weights)[0]:02}",
        )
        for row in rows
    ]


def _played_on(name: str, seed: int, node_size: int) -> tuple[list[TraceJob], list[Node]]:
    return jobs_of(trace(name, seed), node_size, lambda row: row.ran), cluster(CLUSTERS[name], node_size)


def _round(name: str, seed: int, node_size: int) -> Mapping[str, Waits]:
    jobs, nodes = _played_on(name, seed, node_size)
    answer = {rule: _replayed(jobs, nodes, *how) for rule, how in RULES.items()}
    for rule in REFERENCES:
        answer[rule] = _referred(jobs, nodes, rule)
    return answer


def _replayed(
    jobs: Sequence[TraceJob], nodes: Sequence[Node], orders: Orders, half_life: timedelta | None, slack: timedelta
) -> Waits:
    courses = Replay(nodes, orders, half_life, slack).run(jobs).values()
    time = lasted(jobs, [course.ended_at for course in courses if course.ended_at is not None])
    return summary(ended(courses), sum(len(node.gpus) for node in nodes), time)


def _referred(jobs: Sequence[TraceJob], nodes: Sequence[Node], rule: str) -> Waits:
    first = jobs[0].submitted_at
    asked = [
        Asked(
            number,
            (job.submitted_at - first).total_seconds(),
            min(job.ran, job.job.length).total_seconds(),
            job.job.length.total_seconds(),
            job.job.gpus,
            job.job.nodes,
        )
        for number, job in enumerate(jobs)
    ]
    waits = waits_of(rule, asked, [len(node.gpus) for node in nodes])
    last = max(job.submitted + wait + job.ran for job, wait in zip(asked, waits, strict=True))
    came = [
        Ended(job.job.owner, job.job.all_gpus, wait, one.ran) for job, one, wait in zip(jobs, asked, waits, strict=True)
    ]
    return summary(came, sum(len(node.gpus) for node in nodes), timedelta(seconds=last))


def _print_table(title: str, played: Sequence[Mapping[str, Waits]]) -> None:
    print(f"{title}; hours, means of {len(played)} rounds")
    heads = (
        "mean",
        "median",
        "p90",
        "p99",
        "longest",
        "slowdown",
        "used",
        "worst user",
        "broken",
        "ahead",
        "ahead p90",
    )
    print(f"  {'':34}" + "".join(f"{head:>11}" for head in heads))
    for rule in (*REFERENCES, *RULES):
        rows = [
            (
                *(seconds / 3600 for seconds in (waits.mean, waits.median, waits.p90, waits.p99, waits.longest)),
                waits.slowdown,
                waits.used,
                waits.worst_user,
                waits.broken,
                waits.ahead / 3600,
                waits.ahead_p90 / 3600,
            )
            for waits in (one[rule] for one in played)
        ]
        means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        print(f"  {rule:34}" + "".join(f"{value:11.2f}" for value in means), flush=True)


def _figures(name: str, played: Sequence[Mapping[str, Waits]]) -> list[Figure]:
    def ratio(what: str, of: str, rule: str = AREA) -> list[float]:
        return [getattr(one[rule], what) / max(getattr(one[of], what), 1e-9) for one in played]

    broken = [float(sum(one[rule].broken for rule in RULES)) for one in played]
    return [
        Figure(f"{name}: broken promises", "", broken, 0, at_least=False),
        Figure(f"{name}: mean wait of that by arrival", "x", ratio("mean", ARRIVAL), 0.6, at_least=False),
        Figure(f"{name}: mean wait of EASY's by area", "x", ratio("mean", EASY_SMALL), 1.2, at_least=False),
        Figure(f"{name}: p99 wait of that by arrival", "x", ratio("p99", ARRIVAL), 1, at_least=False),
        Figure(f"{name}: worst user of that by arrival", "x", ratio("worst_user", ARRIVAL), 1, at_least=False),
        Figure(
            f"{name}: the same with fair shares", "x", ratio("worst_user", FAIR_ARRIVAL, FAIR_AREA), 1, at_least=False
        ),
        Figure(f"{name}: promise before start, of that by arrival", "x", ratio("ahead", ARRIVAL), 0.5, at_least=False),
    ]
