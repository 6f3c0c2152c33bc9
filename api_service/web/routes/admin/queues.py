"""Dead letters and unknown pods."""

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.dead_letters import DeadLetterOut, Redriven
from reservation_core.contracts.nodes import UnknownPodOut
from reservation_core.ports.queues import QueueName

_MOST = 100


async def dead_letters_page(visit: Visit) -> Response:
    """Show the oldest dead letters of all queues."""
    queues = []
    for queue in QueueName:
        query = {"queue": queue.value, "limit": _MOST}
        queues.append((queue, await visit.rest.all(Page[DeadLetterOut], "/v1/dead-letters", query, at_most=_MOST)))
    return visit.page("admin/dead_letters.html", title="Dead letters", queues=queues, most=_MOST)


async def redrive(visit: Visit) -> Response:
    """Send one dead letter again, or all of a queue."""
    wanted = visit.form.number("id", "The message's number")
    ids = None if wanted is None else {"ids": [wanted]}
    count = (await visit.rest.post(Redriven, f"/v1/dead-letters/{visit.path('queue')}/redrive", ids)).count
    return visit.go("/admin/dead-letters", f"{count} {'message is' if count == 1 else 'messages are'} sent again.")


async def pods_page(visit: Visit) -> Response:
    """Show unknown pods."""
    pods = await visit.rest.all(Page[UnknownPodOut], "/v1/pods/unknown", at_most=1000)
    return visit.page("admin/pods.html", title="Unknown pods", pods=pods)


async def confirm_end(visit: Visit) -> Response:
    """Explain what ending a pod does."""
    pod = str(visit.request.path_params["pod"])
    if all(known.name != pod for known in await visit.rest.all(Page[UnknownPodOut], "/v1/pods/unknown", at_most=1000)):
        raise RestProblemError.because(404, f"There is no unknown pod {pod!r}. Look for it in the list.")
    return ask(
        visit,
        "End this pod?",
        (f"{pod} is deleted: what runs in it ends, and unsaved work is lost.",),
        words="End it",
        back="/admin/pods",
    )


async def end_pod(visit: Visit) -> Response:
    """End an unknown pod."""
    pod = str(visit.request.path_params["pod"])
    await visit.rest.send("POST", f"/v1/pods/unknown/{visit.path('pod')}/end")
    return visit.go("/admin/pods", f"{pod} is being ended.")


ROUTES = (
    WebRoute("GET", "/admin/dead-letters", dead_letters_page, PageAccess.ADMIN),
    WebRoute("POST", "/admin/dead-letters/{queue}/redrive", redrive, PageAccess.ADMIN),
    WebRoute("GET", "/admin/pods", pods_page, PageAccess.ADMIN),
    WebRoute("GET", "/admin/pods/{pod}/end", confirm_end, PageAccess.ADMIN),
    WebRoute("POST", "/admin/pods/{pod}/end", end_pod, PageAccess.ADMIN),
)
