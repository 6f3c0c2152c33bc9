"""Users: create, disable, enable."""

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.finding.list_order import Column, read_choice
from api_service.web.listing import read_list
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.bookings import BookingOut
from reservation_core.contracts.jobs import Job
from reservation_core.contracts.people import UserDisabled, UserOut
from reservation_core.domain.statuses import BookingStatus, JobStatus, Role

_COUNTED = 1000
_WAITING_JOBS = frozenset({JobStatus.QUEUED})
_RUNNING_JOBS = frozenset({JobStatus.STARTING, JobStatus.RUNNING, JobStatus.ENDING})
_WAITING_BOOKINGS = frozenset({BookingStatus.WAITING, BookingStatus.OFFERED})
_BOOKED = frozenset({BookingStatus.CONFIRMED, BookingStatus.ACTIVE})
_COLUMNS: tuple[Column[UserOut], ...] = (
    Column("name", "Name", lambda user: user.name),
    Column("role", "Role", lambda user: user.role),
    Column("since", "Newest", lambda user: user.created_at, largest_first=True),
)


async def users_page(visit: Visit) -> Response:
    """Show all users by name."""
    return await _page(visit)


async def make(visit: Visit) -> Response:
    """Create a user."""
    body = {"name": visit.form.get("name") or "", "role": visit.form.get("role") or Role.USER.value}
    try:
        made = await visit.rest.post(UserOut, "/v1/users", body)
    except RestProblemError as problem:
        return await _page(visit, problem)
    return visit.go(
        f"/admin/tokens?user={made.name}", f"There is a user {made.name} now. Create a token for this user next."
    )


async def confirm_disable(visit: Visit) -> Response:
    """Explain what disabling a user would do."""
    user = await visit.rest.get(UserOut, f"/v1/users/{visit.path('name')}")
    if user.disabled_at is not None:
        return ask(
            visit,
            f"End the running jobs and bookings of {user.name}?",
            (
                f"{user.name} is disabled already.",
                "Running jobs end after their grace time, and bookings are cancelled.",
            ),
            fields={"end": "1"},
            words="End them",
            back="/admin/users",
        )
    waiting, running = await _counts(visit, user.name)
    return ask(
        visit,
        f"Disable {user.name}?",
        (
            "Their tokens stop working at once, their browsers are signed out, and nothing new of theirs starts.",
            f"Jobs in the queue and requests on the waitlist, which are cancelled: {waiting}.",
            f"Running jobs and bookings, which go on unless you tick the box: {running}.",
            "No later user can have this name.",
        ),
        boxes=[
            ("end", "End their running jobs and bookings, too", "Otherwise these go on until they end by themselves.")
        ],
        words=f"Disable {user.name}",
        back="/admin/users",
    )


async def _counts(visit: Visit, name: str) -> tuple[str, str]:
    """How many jobs and bookings of a user wait, and how many run or are booked, counted up to a bound."""
    jobs = await visit.rest.all(
        Page[Job], "/v1/jobs", {"user": name, "status": [*_WAITING_JOBS, *_RUNNING_JOBS]}, at_most=_COUNTED
    )
    bookings = await visit.rest.all(
        Page[BookingOut], "/v1/bookings", {"user": name, "status": [*_WAITING_BOOKINGS, *_BOOKED]}, at_most=_COUNTED
    )
    waiting = sum(job.status in _WAITING_JOBS for job in jobs) + sum(
        one.status in _WAITING_BOOKINGS for one in bookings
    )
    running = len(jobs) + len(bookings) - waiting
    more = " or more" if _COUNTED in (len(jobs), len(bookings)) else ""
    return f"{waiting}{more}", f"{running}{more}"


async def disable(visit: Visit) -> Response:
    """Disable a user."""
    name = visit.path("name")
    query = {"end": visit.form.has("end")}
    disabled = (await visit.rest.call(UserDisabled, "DELETE", f"/v1/users/{name}", query=query)).body
    return visit.go("/admin/users", f"{disabled.name} is disabled.{_going_on(disabled.left_in_all)}")


def _going_on(left: int) -> str:
    if left == 0:
        return ""
    return " 1 job or booking goes on." if left == 1 else f" {left} jobs and bookings go on."


async def enable(visit: Visit) -> Response:
    """Enable a disabled user."""
    user = await visit.rest.post(UserOut, f"/v1/users/{visit.path('name')}/enable")
    return visit.go("/admin/users", f"{user.name} may sign in again, with the tokens that were not revoked.")


async def _page(visit: Visit, problem: RestProblemError | None = None) -> Response:
    choice = read_choice("/admin/users", visit.request.query_params.multi_items(), (), _COLUMNS)
    return visit.page(
        "admin/users.html",
        title="Users",
        status=200 if problem is None else problem.status,
        listing=await read_list(visit, Page[UserOut], "/v1/users", {}, choice, _COLUMNS, _words_of),
        roles=list(Role),
        typed=visit.form.shown(),
        problem=problem,
    )


def _words_of(user: UserOut) -> tuple[str, ...]:
    return user.name, user.role, "may sign in" if user.disabled_at is None else "disabled"


ROUTES = (
    WebRoute("GET", "/admin/users", users_page, PageAccess.ADMIN),
    WebRoute("POST", "/admin/users", make, PageAccess.ADMIN),
    WebRoute("GET", "/admin/users/{name}/disable", confirm_disable, PageAccess.ADMIN),
    WebRoute("POST", "/admin/users/{name}/disable", disable, PageAccess.ADMIN),
    WebRoute("POST", "/admin/users/{name}/enable", enable, PageAccess.ADMIN),
)
