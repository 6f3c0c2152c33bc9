"""Nodes: cordon and fence."""

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.nodes import NodeOut

_DONE = {
    "cordon": "{} gets nothing new from now on.",
    "uncordon": "{} takes jobs again.",
    "fence": "{} is fenced: what it held is given to others.",
    "unfence": "The fence of {} is taken away.",
}


async def nodes_page(visit: Visit) -> Response:
    nodes = await visit.rest.all(Page[NodeOut], "/v1/nodes")
    return visit.page("admin/nodes.html", title="Nodes", live="admin", nodes=nodes)


async def confirm_cordon(visit: Visit) -> Response:
    """Explain a cordon, and ask for its reason."""
    return _confirm(
        visit,
        "cordon",
        "Nothing new is placed there by us: no job starts, and nothing new is booked on its cards.",
        "What runs there goes on, and bookings that were made stay. Plan maintenance instead to move these.",
    )


async def confirm_fence(visit: Visit) -> Response:
    """Explain a fence."""
    return _confirm(
        visit,
        "fence",
        "Only do this when the node is without power, or was made anew: pods that still run there would share cards"
        " with others' from now on.",
        "Its jobs end as failed, and the cards that they held are free, though nobody could ask the node.",
    )


async def act(visit: Visit) -> Response:
    """Cordon, uncordon, fence or unfence a node."""
    node, deed = str(visit.request.path_params["node"]), visit.request.url.path.rpartition("/")[2]
    body: dict[str, str] | None = None
    if deed in ("cordon", "fence") and (reason := visit.form.get("reason")) is not None:
        body = {"reason": reason}
    await visit.rest.send("POST", f"/v1/nodes/{visit.path('node')}/{deed}", body=body)
    return visit.go("/admin/nodes", _DONE[deed].format(node))


def _confirm(visit: Visit, deed: str, *sentences: str) -> Response:
    node = str(visit.request.path_params["node"])
    return ask(
        visit,
        f"{deed.capitalize()} {node}?",
        sentences,
        reason=True,
        words=f"{deed.capitalize()} {node}",
        back="/admin/nodes",
    )


ROUTES = (
    WebRoute("GET", "/admin/nodes", nodes_page, PageAccess.ADMIN),
    WebRoute("GET", "/admin/nodes/{node}/cordon", confirm_cordon, PageAccess.ADMIN),
    WebRoute("GET", "/admin/nodes/{node}/fence", confirm_fence, PageAccess.ADMIN),
    *(WebRoute("POST", f"/admin/nodes/{{node}}/{deed}", act, PageAccess.ADMIN) for deed in _DONE),
)
