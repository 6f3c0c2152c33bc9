"""The list of jobs, and one job with its life, its log and its forms."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.finding.list_order import Column, Listing, read_choice
from api_service.web.jobs.array_elements import read_elements
from api_service.web.jobs.dependency_graph import read_graph
from api_service.web.jobs.job_life import LifeStep, life_of
from api_service.web.jobs.job_losses import what_running_loses, what_waiting_loses
from api_service.web.jobs.use_graph import read_use, use_file
from api_service.web.jobs.waiting_picture import read_why_waiting
from api_service.web.listing import read_list
from api_service.web.live import USE
from api_service.web.rest_calls import RestProblemError
from api_service.web.routes.job_logs import shown_log
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.jobs import Job
from reservation_core.contracts.sessions import JobConnection
from reservation_core.domain.errors import JobNotRunningError, NotFoundError
from reservation_core.domain.jobs.workload_words import workload_words
from reservation_core.domain.model import PodName
from reservation_core.domain.sessions.ways_in import Way
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.sessions.pod_streams import ListeningPort
from reservation_core.usecases.jobs.visible_jobs import view_visible
from reservation_core.usecases.people.users import RESERVED_NAMES
from reservation_core.usecases.sessions.enter import find_pod_to_enter

_EVENTS = 500
_PORTS = 20
_ASK_NO_MORE = 286
"""The status by which a part of a page is asked for no more."""
_SHARED = "/jobs/shared"
_WAYS = {
    Way.EXEC: "a program",
    Way.ATTACH: "a terminal that was joined",
    Way.FORWARD: "a port",
    Way.SSH: "SSH",
    Way.TERMINAL: "a terminal on this page",
    Way.APP: "an app in the browser",
}

_COLUMNS: tuple[Column[Job], ...] = (
    Column("name", "Name", lambda job: (job.name or job.id).casefold()),
    Column("user", "User", lambda job: job.user),
    Column("gpus", "Most GPUs", lambda job: job.gpus * job.nodes, largest_first=True),
    Column("submitted", "Submitted, newest first", lambda job: job.created_at, largest_first=True),
    Column("started", "Started, newest first", lambda job: job.started_at, largest_first=True),
    Column("ends", "Ends first", lambda job: job.finished_at or job.ends_at),
)


async def list_page(visit: Visit) -> Response:
    """Show jobs, newest first unless `?sort=` says otherwise: the visitor's; for administrators everybody's.

    At `/jobs/shared` those that are shared with the visitor, the last shared first.
    """
    path = visit.request.url.path
    shared = path == _SHARED
    columns = [column for column in _COLUMNS if shared or visit.principal.is_admin or column.name != "user"]
    choice = read_choice(path, visit.request.query_params.multi_items(), ("status", "user"), columns)
    statuses = [value for name, value in choice.filters if name == "status"]
    asked = {"status": statuses or None, "user": choice.chosen("user") or None, "shared": shared or None}
    missing = ""
    try:
        listing = await read_list(visit, Page[Job], "/v1/jobs", asked, choice, columns, _words_of)
    except RestProblemError as problem:
        if problem.status != HTTPStatus.NOT_FOUND:
            raise
        listing, missing = Listing((), choice, columns, None), problem.problem.detail or ""
    context: dict[str, Any] = {
        "listing": listing,
        "missing": missing,
        "shared": shared,
        "statuses": statuses,
        "all_statuses": list(JobStatus),
        # Many rows are not read anew after each change.
        "first": listing.before is None and listing.cut is None,
    }
    if visit.partial:
        return visit.part("_jobs.html", **context)
    return visit.page("jobs.html", title="Jobs", live="jobs" if context["first"] else "", **context)


def _words_of(job: Job) -> tuple[str | None, ...]:
    return job.name, job.id, job.gpu_type


async def job_page(visit: Visit) -> Response:
    return await show_job(visit)


async def job_state(visit: Visit) -> Response:
    """The parts of the page that change."""
    return visit.part("_job_state.html", **_context(visit, await _state(visit)))


async def job_connections(visit: Visit) -> Response:
    """The part that lists who is inside."""
    job_id = visit.path("job_id")
    job = await visit.rest.get(Job, f"/v1/jobs/{job_id}")
    connections = await _connections(visit, job_id)
    return visit.part("_connections.html", job=job, connections=connections, ways=_WAYS)


async def job_ports(visit: Visit) -> Response:
    """The part that lists ports at which programs of the job listen."""
    job_id = visit.path("job_id")
    job = await visit.rest.get(Job, f"/v1/jobs/{job_id}")
    pod = await _pod_to_enter(visit, job_id)
    return visit.part("_ports.html", job=job, ports=() if pod is None else await _ports(visit, pod))


async def job_use(visit: Visit) -> Response:
    """The part that shows how the GPUs are used."""
    job = await visit.rest.get(Job, f"/v1/jobs/{visit.path('job_id')}")
    return visit.part("_job_use.html", use_file=f"/jobs/{job.id}/use.csv", use=await read_use(visit, job))


async def job_use_file(visit: Visit) -> Response:
    """The same as CSV."""
    job = await visit.rest.get(Job, f"/v1/jobs/{visit.path('job_id')}")
    return await use_file(visit, f"/v1/jobs/{job.id}", job.id)


async def job_elements(visit: Visit) -> Response:
    """The part that lists an array's elements."""
    job = await visit.rest.get(Job, f"/v1/jobs/{visit.path('job_id')}")
    elements = await read_elements(visit, job)
    if elements is None:
        raise RestProblemError.because(404, "The job is not an array.")
    return visit.part("_elements.html", job=job, elements=elements)


async def job_graph(visit: Visit) -> Response:
    """The part that draws the jobs around it."""
    job = await visit.rest.get(Job, f"/v1/jobs/{visit.path('job_id')}")
    graph = await read_graph(visit, job)
    if graph is None:
        raise RestProblemError.because(404, "The job waits for no others, and none waits for it.")
    drawing = visit.part("_graph.html", job=job, graph=graph)
    if not graph.changes:
        drawing.status_code = _ASK_NO_MORE
    return drawing


async def confirm_cancel(visit: Visit) -> Response:
    """Explain what cancelling the job would lose."""
    job = await visit.rest.get(Job, f"/v1/jobs/{visit.path('job_id')}")
    if job.status in FINAL_STATUSES:
        raise RestProblemError.because(409, "The job has ended already.")
    waits = job.status is JobStatus.QUEUED
    return ask(
        visit,
        f"{'Cancel' if waits else 'End'} {job.name or job.id}?",
        what_waiting_loses(job) if waits else what_running_loses(job),
        words="Cancel the job" if waits else "End it",
        back=f"/jobs/{job.id}",
    )


async def cancel(visit: Visit) -> Response:
    """Cancel the job."""
    job_id = visit.path("job_id")
    job = await visit.rest.post(Job, f"/v1/jobs/{job_id}/cancel")
    ended = job.status in FINAL_STATUSES
    return visit.go(f"/jobs/{job_id}", f"{job_id} is cancelled." if ended else f"{job_id} is being ended.")


async def extend(visit: Visit) -> Response:
    """Extend the job."""
    job_id = visit.path("job_id")
    try:
        await visit.rest.send("POST", f"/v1/jobs/{job_id}/extend", body={"by": visit.form.duration("by") or ""})
    except RestProblemError as problem:
        if problem.status not in (400, 409, 422):
            raise
        return await show_job(visit, problem)
    return visit.go(f"/jobs/{job_id}", f"{job_id} may go on {visit.form.get('by')} longer.")


async def keep(visit: Visit) -> Response:
    """Keep the job, though its GPUs are idle."""
    job_id = visit.path("job_id")
    try:
        await visit.rest.post(Job, f"/v1/jobs/{job_id}/keep")
    except RestProblemError as problem:
        if problem.status != 409:
            raise
        return await show_job(visit, problem)
    return visit.go(f"/jobs/{job_id}", f"{job_id} keeps its GPUs.")


async def show_job(visit: Visit, problem: RestProblemError | None = None, typed_user: str = "") -> Response:
    """The page of a job. `typed_user`: what a form to share it had, which was refused."""
    job_id = visit.path("job_id")
    state = await _state(visit)
    elements = await read_elements(visit, state.job)
    waiting = None if elements is not None else await read_why_waiting(visit, state.job)
    has_use = state.job.started_at is not None and elements is None
    use = await read_use(visit, state.job) if has_use else None
    shown = await shown_log(visit, state.view)
    return visit.page(
        "job.html",
        title=state.job.name or job_id,
        status=200 if problem is None else problem.status,
        live=" ".join([f"job:{job_id}", *_also_live(state.job)]),
        waiting=waiting,
        shown=shown,
        use=use,
        elements=elements,
        graph=await read_graph(visit, state.job),
        problem=problem,
        typed_user=typed_user,
        **_context(visit, state),
    )


def _also_live(job: Job) -> list[str]:
    """What else than the job's own changes its page shows."""
    if job.status is JobStatus.QUEUED:
        return ["queue"]
    return [USE] if job.started_at is not None and job.finished_at is None and job.array is None else []


@dataclass(frozen=True, slots=True)
class _JobState:
    """A job as REST shows it and as the ledger has it, its life, and who is inside.

    `may_enter`: it runs, and is the visitor's or shared with the visitor. Administrators do not enter others' jobs.
    `ports` are for those who may enter.
    """

    job: Job
    view: JobView
    steps: list[LifeStep]
    may_enter: bool
    connections: Sequence[JobConnection]
    ports: Sequence[ListeningPort]


async def _state(visit: Visit) -> _JobState:
    job_id = visit.path("job_id")
    job = await visit.rest.get(Job, f"/v1/jobs/{job_id}")
    async with visit.services.runtime.uow() as uow:
        view = await view_visible(uow, visit.principal, job_id)
        events = await uow.events.of_reservation(job_id, 0, _EVENTS)
    runs = job.status is JobStatus.RUNNING
    pod = await _pod_to_enter(visit, job_id) if runs else None
    ports = () if pod is None else await _ports(visit, pod)
    connections = await _connections(visit, job_id) if runs else []
    return _JobState(job, view, life_of(events, visit.now), pod is not None, connections, ports)


async def _pod_to_enter(visit: Visit, job_id: str) -> PodName | None:
    """The first pod of a job that runs and that the visitor may enter; None for another's, and otherwise."""
    try:
        async with visit.services.runtime.uow() as uow:
            return await find_pod_to_enter(uow, job_id, 0, visit.principal.user_id)
    except (NotFoundError, JobNotRunningError):
        return None


async def _ports(visit: Visit, pod: PodName) -> Sequence[ListeningPort]:
    """Ports at which programs of a pod listen, as far as that is known."""
    try:
        return (await visit.services.runtime.pod_streams.listening_ports(pod) or ())[:_PORTS]
    except ClusterUnavailableError:
        return ()


async def _connections(visit: Visit, job_id: str) -> Sequence[JobConnection]:
    return (await visit.rest.get(Page[JobConnection], f"/v1/jobs/{job_id}/connections")).items


def _context(visit: Visit, state: _JobState) -> dict[str, Any]:
    """What the templates of a job's page use."""
    ended = state.job.status in FINAL_STATUSES
    workload = state.view.reservation.workload
    return {
        "job": state.job,
        "runs": workload_words(workload),
        "disks": workload.disks,
        "secrets": workload.secrets,
        "steps": state.steps,
        "servers": RESERVED_NAMES,
        "ended": ended,
        "may_change": visit.principal.is_admin or state.job.user == visit.principal.user,
        "may_enter": state.may_enter,
        "connections": state.connections,
        "ports": state.ports,
        "ways": _WAYS,
    }


ROUTES = (
    WebRoute("GET", "/jobs", list_page),
    WebRoute("GET", _SHARED, list_page),
    WebRoute("GET", "/jobs/{job_id}", job_page),
    WebRoute("GET", "/jobs/{job_id}/state", job_state, part_of="/jobs/{job_id}"),
    WebRoute("GET", "/jobs/{job_id}/connections", job_connections, part_of="/jobs/{job_id}"),
    WebRoute("GET", "/jobs/{job_id}/ports", job_ports, part_of="/jobs/{job_id}"),
    WebRoute("GET", "/jobs/{job_id}/use", job_use, part_of="/jobs/{job_id}"),
    WebRoute("GET", "/jobs/{job_id}/use.csv", job_use_file),
    WebRoute("GET", "/jobs/{job_id}/elements", job_elements, part_of="/jobs/{job_id}"),
    WebRoute("GET", "/jobs/{job_id}/graph", job_graph, part_of="/jobs/{job_id}"),
    WebRoute("GET", "/jobs/{job_id}/cancel", confirm_cancel),
    WebRoute("POST", "/jobs/{job_id}/cancel", cancel),
    WebRoute("POST", "/jobs/{job_id}/extend", extend),
    WebRoute("POST", "/jobs/{job_id}/keep", keep),
)
