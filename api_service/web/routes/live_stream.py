"""The stream of an open page: which of its parts are stale."""

import re

from starlette.responses import Response

from api_service.following import LiveStream
from api_service.problems import ProblemError
from api_service.web.live import USE, messages
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit

_MOST = 10
_COMMON = frozenset({"now", "queue", "jobs", "calendar", USE})
_JOB = re.compile(r"job:(job-[0-9a-z]{1,32}(?:\.[0-9]{1,4})?)")
_BOOKING = re.compile(r"booking:(bkg-[0-9a-z]{1,32})")


async def follow(visit: Visit) -> Response:
    """`?topics=now,job:job-abc`: an event for each changed topic. Other users' jobs and bookings are refused."""
    topics = [topic for topic in visit.query("topics").split(",") if topic]
    if not 0 < len(topics) <= _MOST:
        raise ProblemError(422, "bad_topics", f"Name 1 to {_MOST} topics.")
    for topic in topics:
        await _require(visit, topic)
    return LiveStream(
        messages(visit.topics, topics, visit.query("since")),
        media_type="text/event-stream",
        place=visit.stream_place(),
        wakeups=visit.services.wakeups,
        recheck=lambda: visit.services.authenticator.principal(f"Bearer {visit.signed_in.secret}", session=True),
    )


async def _require(visit: Visit, topic: str) -> None:
    """Raises ProblemError or RestProblemError for topics that the visitor may not see."""
    if topic in _COMMON or (topic == "admin" and visit.principal.is_admin):
        return
    if found := _JOB.fullmatch(topic):
        await visit.rest.send("GET", f"/v1/jobs/{found[1]}")
    elif found := _BOOKING.fullmatch(topic):
        await visit.rest.send("GET", f"/v1/bookings/{found[1]}")
    else:
        raise ProblemError(422, "bad_topics", "There is no such topic for you. Reload the page.")


ROUTES = (WebRoute("GET", "/live", follow),)
