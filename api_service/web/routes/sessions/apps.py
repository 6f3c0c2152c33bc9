"""Opening an app of a job from its page."""

from starlette.responses import Response

from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.sessions import AppTicketOut

_MOST_DIGITS = 5


async def open_app(visit: Visit) -> Response:
    """Lead to an app with a ticket. Pages may send forms to this server alone, so a page leads on, not a redirect."""
    job_id = visit.path("job_id")
    typed = (visit.form.get("port") or "").strip()
    # REST says what is wrong with anything else.
    port = int(typed) if typed.isascii() and typed.isdecimal() and len(typed) <= _MOST_DIGITS else typed
    ticket = await visit.rest.post(AppTicketOut, f"/v1/jobs/{job_id}/app-tickets", {"port": port})
    return visit.page("opening_app.html", title=f"Port {port}", job_id=job_id, port=port, url=ticket.url)


ROUTES = (WebRoute("POST", "/jobs/{job_id}/open", open_app),)
