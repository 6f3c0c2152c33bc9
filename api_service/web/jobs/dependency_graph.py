"""The drawing of the jobs around a job: what it waits for on its left, what waits for it on its right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, assert_never

from api_service.web.jobs.graph_layout import BOX_HEIGHT, BOX_WIDTH, GraphLayout, lay_out
from api_service.web.visit import Visit
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.jobs import Job
from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.domain.jobs.dependency_layers import layers_around, nearest_jobs
from reservation_core.domain.statuses import FINAL_STATUSES
from reservation_core.ports.jobs.dependencies import DependencyLink, LinkedJob
from reservation_core.usecases.jobs.visible_jobs import visible_user

MOST_JOBS = 60
"""Jobs in a drawing."""
_MOST_LINKS = 20_000
_COUNTED = 1000
"""Jobs on each side that are counted."""
_NAMED = 10


@dataclass(frozen=True, slots=True)
class GraphJob:
    """A job in the drawing; `waits` says in words what the lines to it say."""

    job: LinkedJob
    x: int
    y: int
    waits: str


@dataclass(frozen=True, slots=True)
class DependencyGraph:
    """`left_out` jobs are not drawn; at least so many where `is_cut`."""

    layout: GraphLayout
    jobs: Sequence[GraphJob]
    left_out: int
    is_cut: bool
    box: ClassVar = (BOX_WIDTH, BOX_HEIGHT)

    @property
    def changes(self) -> bool:
        """Whether a job in it is not over."""
        return any(drawn.job.status not in FINAL_STATUSES for drawn in self.jobs)

    @staticmethod
    def word(when: DependencyWhen) -> str:
        """What a job has to do for those that wait for it."""
        match when:
            case DependencyWhen.SUCCEEDED:
                return "succeeds"
            case DependencyWhen.ENDED:
                return "ends"
            case DependencyWhen.FAILED:
                return "fails"
            case DependencyWhen.STARTED:
                return "starts"
            case _:
                assert_never(when)


async def read_graph(visit: Visit, job: Job) -> DependencyGraph | None:
    """Read what the visitor may see of it; None for a job that waits for no others and that none waits for."""
    user_id = visible_user(visit.principal)

    async def read(uow: UnitOfWork) -> DependencyGraph | None:
        around, is_cut = await uow.dependencies.around(job.id, user_id, _COUNTED)
        links = await uow.dependencies.among(around, job.id, _MOST_LINKS)
        if not links:
            return None
        chosen = nearest_jobs(job.id, [(link.needed, link.waiting) for link in links], MOST_JOBS)
        if len(chosen) < len(around):
            links = await uow.dependencies.among(chosen, job.id, _MOST_LINKS)
        jobs = await uow.dependencies.linked(chosen)
        if len(jobs) < len(chosen):
            return None  # one was removed meanwhile, long after its end
        return _draw(job.id, jobs, links, len(around), is_cut=is_cut)

    return await visit.services.reads(read)


def _draw(
    job_id: str, jobs: dict[str, LinkedJob], links: Sequence[DependencyLink], count: int, *, is_cut: bool
) -> DependencyGraph:
    layout = lay_out(layers_around(job_id, [(link.needed, link.waiting) for link in links]), links)
    drawn = [
        GraphJob(jobs[drawn_id], x, y, _waits([link for link in links if link.waiting == drawn_id], jobs))
        for drawn_id, (x, y) in layout.places.items()
    ]
    return DependencyGraph(layout, drawn, count - len(drawn), is_cut)


def _waits(links: Sequence[DependencyLink], jobs: dict[str, LinkedJob]) -> str:
    if not links:
        return ""
    named = [f"{jobs[link.needed].name or link.needed} {DependencyGraph.word(link.when)}" for link in links[:_NAMED]]
    more = [f"for {len(links) - _NAMED} more"] if len(links) > _NAMED else []
    return "waits until " + ", ".join(named + more)
