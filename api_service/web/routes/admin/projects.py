"""Projects: create, change members, end."""

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.people import UserOut
from reservation_core.contracts.policy import ProjectOut, RuleOut

_SUGGESTED = 500


async def projects_page(visit: Visit) -> Response:
    """Show all projects by name."""
    return await _list(visit)


async def make(visit: Visit) -> Response:
    """Create a project."""
    body = {"name": visit.form.get("name") or "", "title": visit.form.get("title")}
    try:
        name = (await visit.rest.post(ProjectOut, "/v1/projects", body)).name
    except RestProblemError as problem:
        return await _list(visit, problem)
    return visit.go(f"/admin/projects/{visit.encoded(name)}", f"There is a project {name} now. Add members next.")


async def project_page(visit: Visit) -> Response:
    """Show one project with its members."""
    return await _page(visit)


async def add_member(visit: Visit) -> Response:
    """Add a member."""
    user = visit.form.get("user")
    if user is None:
        return await _page(visit, RestProblemError.because(422, "Name the users to add."))
    try:
        await visit.rest.send("PUT", f"{_path(visit)}/members/{visit.encoded(user)}")
    except RestProblemError as problem:
        return await _page(visit, problem)
    return visit.go(_address(visit), f"{user} is in {_name(visit)}.")


async def confirm_remove(visit: Visit) -> Response:
    """Explain what removing a member would do."""
    user = visit.request.path_params["user"]
    if user not in (await visit.rest.get(ProjectOut, _path(visit))).members:
        raise RestProblemError.because(404, f"{user} is not a member of {_name(visit)}.")
    return ask(
        visit,
        f"Remove {user} from {_name(visit)}?",
        (f"{user} can request nothing more for {_name(visit)}. Jobs and bookings of {user} for it stay.",),
        words=f"Remove {user}",
        back=_address(visit),
    )


async def remove_member(visit: Visit) -> Response:
    """Remove a member."""
    try:
        await visit.rest.send("DELETE", f"{_path(visit)}/members/{visit.path('user')}")
    except RestProblemError as problem:
        return await _page(visit, problem)
    user = visit.request.path_params["user"]
    return visit.go(_address(visit), f"{user} is no longer in {_name(visit)}. Jobs and bookings of {user} for it stay.")


async def confirm_end(visit: Visit) -> Response:
    """Explain what ending a project would do."""
    project = await visit.rest.get(ProjectOut, _path(visit))
    members = len(project.members)
    stored = await visit.rest.all(Page[RuleOut], "/v1/policy")
    rules = [rule.scope for rule in stored if rule.project == project.name]
    return ask(
        visit,
        f"End {project.name}?",
        (
            f"Its {members} members can request nothing more for it." if members != 1 else
            f"{project.members[0]} can request nothing more for it.",
            "Its jobs and bookings go on, and its usage stays in reports under its name.",
            f"Its rules are deleted: {', '.join(rules)}." if rules else "It has no rules.",
        ),
        words=f"End {project.name}",
        back=_address(visit),
    )  # fmt: skip


async def end(visit: Visit) -> Response:
    """End a project."""
    ended = await visit.rest.call(ProjectOut, "DELETE", _path(visit))
    return visit.go("/admin/projects", f"{ended.body.name} has ended.")


def _name(visit: Visit) -> str:
    return str(visit.request.path_params["project"])


def _address(visit: Visit) -> str:
    return f"/admin/projects/{visit.path('project')}"


def _path(visit: Visit) -> str:
    return f"/v1/projects/{visit.path('project')}"


async def _list(visit: Visit, problem: RestProblemError | None = None) -> Response:
    asked = {"limit": 100, "cursor": visit.query("cursor") or None}
    found = await visit.rest.get(Page[ProjectOut], "/v1/projects", asked)
    return visit.page(
        "admin/projects.html",
        title="Projects",
        status=200 if problem is None else problem.status,
        live="admin",
        projects=found.items,
        cursor=asked["cursor"],
        next_cursor=found.next_cursor,
        typed=visit.form.shown(),
        problem=problem,
    )


async def _page(visit: Visit, problem: RestProblemError | None = None) -> Response:
    project = await visit.rest.get(ProjectOut, _path(visit))
    users = await visit.rest.all(Page[UserOut], "/v1/users", at_most=_SUGGESTED)
    return visit.page(
        "admin/project.html",
        title=f"Project {project.name}",
        status=200 if problem is None else problem.status,
        live="admin",
        project=project,
        address=_address(visit),
        others=[user.name for user in users if user.disabled_at is None and user.name not in project.members],
        typed=visit.form.shown(),
        problem=problem,
    )


ROUTES = (
    WebRoute("GET", "/admin/projects", projects_page, PageAccess.ADMIN),
    WebRoute("POST", "/admin/projects", make, PageAccess.ADMIN),
    WebRoute("GET", "/admin/projects/{project}", project_page, PageAccess.ADMIN),
    WebRoute("POST", "/admin/projects/{project}/members", add_member, PageAccess.ADMIN),
    WebRoute("GET", "/admin/projects/{project}/members/{user}/remove", confirm_remove, PageAccess.ADMIN),
    WebRoute("POST", "/admin/projects/{project}/members/{user}/remove", remove_member, PageAccess.ADMIN),
    WebRoute("GET", "/admin/projects/{project}/end", confirm_end, PageAccess.ADMIN),
    WebRoute("POST", "/admin/projects/{project}/end", end, PageAccess.ADMIN),
)
