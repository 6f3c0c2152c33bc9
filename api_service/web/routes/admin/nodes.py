"""Nodes: search, cordon and fence; release of quarantined GPUs."""

from enum import StrEnum
from urllib.parse import urlencode

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.sessions.return_address import safe_return
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.nodes import NodeOut

_LIST = "/admin/nodes"
_PAGE = 100
_DONE = {
    "cordon": "{} gets nothing new from now on.",
    "uncordon": "{} takes jobs again.",
    "fence": "{} is fenced: its jobs end, and the GPUs that they held become free.",
    "unfence": "{} is no longer fenced.",
}


class NodeState(StrEnum):
    """A node's state in the words of its badge."""

    TAKES_JOBS = "takes jobs"
    CLOSED = "gets nothing new"
    CORDONED = "cordoned"
    SILENT = "does not answer"
    FENCED = "fenced"


_GRADES = {
    NodeState.TAKES_JOBS: "good",
    NodeState.CLOSED: "warn",
    NodeState.CORDONED: "warn",
    NodeState.SILENT: "bad",
    NodeState.FENCED: "bad",
}


async def nodes_page(visit: Visit) -> Response:
    """Show nodes by name: `?node=` is a name, or a part of names, logical names, zones or types; `after` is a name."""
    typed, state, after = visit.query("node"), visit.query("state"), visit.query("after")
    every = await visit.rest.all(Page[NodeOut], "/v1/nodes")
    named = [node for node in every if node.name == typed] or [node for node in every if _matches(node, typed)]
    found = sorted((node for node in named if state in ("", state_of(node))), key=lambda node: node.name)
    ahead = [node for node in found if node.name > after]
    shown = ahead[:_PAGE]
    asked = {name: value for name, value in (("node", typed), ("state", state)) if value}
    return visit.page(
        "admin/nodes.html",
        title="Nodes",
        live="admin",
        nodes=[(node, state_of(node), _GRADES[state_of(node)]) for node in shown],
        every=len(every),
        found=len(found),
        first=len(found) - len(ahead) + 1,
        typed=typed,
        chosen_state=state,
        states=list(NodeState),
        more=urlencode({**asked, "after": shown[-1].name}) if len(ahead) > _PAGE else None,
    )


def _matches(node: NodeOut, typed: str) -> bool:
    words = (node.name, node.logical_name or "", node.zone or "", *node.gpu_types)
    return any(typed.casefold() in word.casefold() for word in words)


def state_of(node: NodeOut) -> NodeState:
    """Its state, the worst first."""
    if node.fenced_at is not None:
        return NodeState.FENCED
    if not node.ready:
        return NodeState.SILENT
    if node.cordoned_at is not None:
        return NodeState.CORDONED
    return NodeState.TAKES_JOBS if node.schedulable else NodeState.CLOSED


async def confirm_cordon(visit: Visit) -> Response:
    """Explain a cordon, and ask for its reason."""
    return await _confirm(
        visit,
        "cordon",
        "No new job starts there, and its GPUs get no new bookings.",
        "Running jobs go on, and bookings stay. To move the bookings, plan maintenance instead.",
    )


async def confirm_fence(visit: Visit) -> Response:
    """Explain a fence."""
    return await _confirm(
        visit,
        "fence",
        "Only do this when the node has no power, or was reinstalled: pods that still run there would share GPUs"
        " with new ones.",
        "Its jobs end as failed, and the GPUs that they held become free, although the node did not answer.",
    )


async def act(visit: Visit) -> Response:
    """Cordon, uncordon, fence or unfence a node."""
    node, deed = str(visit.request.path_params["node"]), visit.request.url.path.rpartition("/")[2]
    body: dict[str, str] | None = None
    if deed in ("cordon", "fence") and (reason := visit.form.get("reason")) is not None:
        body = {"reason": reason}
    await visit.rest.send("POST", f"/v1/nodes/{visit.path('node')}/{deed}", body=body)
    return visit.go(safe_return(visit.form.get("next") or _LIST), _DONE[deed].format(node))


async def release_gpu(visit: Visit) -> Response:
    """End the quarantine of a GPU."""
    node, index = str(visit.request.path_params["node"]), visit.path("index")
    await visit.rest.send("POST", f"/v1/nodes/{visit.path('node')}/gpus/{index}/release")
    return visit.go(safe_return(visit.form.get("next") or _LIST), f"GPU {index} of {node} is not quarantined any more.")


async def _confirm(visit: Visit, deed: str, *sentences: str) -> Response:
    node, back = str(visit.request.path_params["node"]), safe_return(visit.query("next") or _LIST)
    if all(known.name != node for known in await visit.rest.all(Page[NodeOut], "/v1/nodes")):
        raise RestProblemError.because(404, f"There is no node {node!r}. Look for it in the list of nodes.")
    return ask(
        visit,
        f"{deed.capitalize()} {node}?",
        sentences,
        reason=True,
        words=f"{deed.capitalize()} {node}",
        back=back,
        fields={"next": back},
    )


ROUTES = (
    WebRoute("GET", "/admin/nodes", nodes_page, PageAccess.ADMIN),
    WebRoute("GET", "/admin/nodes/{node}/cordon", confirm_cordon, PageAccess.ADMIN),
    WebRoute("GET", "/admin/nodes/{node}/fence", confirm_fence, PageAccess.ADMIN),
    WebRoute("POST", "/admin/nodes/{node}/gpus/{index}/release", release_gpu, PageAccess.ADMIN),
    *(WebRoute("POST", f"/admin/nodes/{{node}}/{deed}", act, PageAccess.ADMIN) for deed in _DONE),
)
