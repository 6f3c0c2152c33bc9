"""Every page, in the order in which addresses are tried."""

from api_service.web.routes import jobs, live_stream, now, queue, sign_in, submit
from api_service.web.routing import WebRoute

WEB_ROUTES: tuple[WebRoute, ...] = (
    *sign_in.ROUTES,
    *live_stream.ROUTES,
    *now.ROUTES,
    *queue.ROUTES,
    *submit.ROUTES,
    *jobs.ROUTES,
)
