"""Everything that may need an administrator, at a glance."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from api_service.web.routes.admin.nodes import NodeState, state_of
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.dead_letters import DeadLetterOut
from reservation_core.contracts.maintenance import MaintenanceOut
from reservation_core.contracts.nodes import NodeOut, UnknownPodOut
from reservation_core.domain.policy.rule_words import counted
from reservation_core.domain.time_words import rfc3339
from reservation_core.ports.queues import QueueName

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing that can be out of order. `trouble` is what is wrong with `count` of them; without any, `fine`."""

    title: str
    address: str
    fine: str
    words: str
    lines: Sequence[str]
    count: int
    grade: str = "bad"

    @property
    def trouble(self) -> str | None:
        """The words for what is wrong; None if nothing is."""
        return self.words if self.count else None


async def overview_page(visit: Visit) -> Response:
    nodes = await visit.rest.all(Page[NodeOut], "/v1/nodes")
    others = [await _maintenance(visit), await _dead_letters(visit), await _pods(visit)]
    matters = [_nodes(nodes), _quarantined_gpus(nodes), *others]
    return visit.page("admin/overview.html", title="Administration", live="admin", matters=matters)


def _nodes(nodes: Sequence[NodeOut]) -> Matter:
    out = [node for node in nodes if state_of(node) is not NodeState.TAKES_JOBS]
    lines = [f"{node.name}: {node.detail or 'gets nothing new'}" for node in out[:_SHOWN]]
    said = "gets nothing new." if len(out) == 1 else "get nothing new."
    return Matter("Nodes", "/admin/nodes", "All nodes take jobs.", said, lines, len(out), "warn")


def _quarantined_gpus(nodes: Sequence[NodeOut]) -> Matter:
    having = [node for node in nodes if node.quarantined_gpus]
    lines = [f"{node.name}: {node.detail or 'quarantined'}" for node in having[:_SHOWN]]
    count = sum(len(node.quarantined_gpus) for node in having)
    said = f"quarantined: {'it gets' if count == 1 else 'they get'} nothing new."
    return Matter("GPUs", "/admin/nodes", "No GPU is quarantined.", said, lines, count)


async def _maintenance(visit: Visit) -> Matter:
    ahead = await visit.rest.all(Page[MaintenanceOut], "/v1/maintenance", {"open": True}, at_most=100)
    lines = [
        f"{window.reason}: {counted(len(window.gpus), 'GPU')} from {rfc3339(window.start)} to {rfc3339(window.end)}"
        for window in ahead[:_SHOWN]
    ]
    return Matter(
        "Maintenance", "/admin/maintenance", "No window is planned.", "planned or open.", lines, len(ahead), "warn"
    )


async def _dead_letters(visit: Visit) -> Matter:
    lines, count = [], 0
    for queue in QueueName:
        query = {"queue": queue.value, "limit": 100}
        letters = await visit.rest.all(Page[DeadLetterOut], "/v1/dead-letters", query, at_most=100)
        if letters:
            count += len(letters)
            lines.append(f"{queue.value}: {len(letters)}, the oldest: {letters[0].error[:120]}")
    fine = "Every message was handled."
    return Matter("Dead letters", "/admin/dead-letters", fine, "could not be handled.", lines, count)


async def _pods(visit: Visit) -> Matter:
    pods = await visit.rest.all(Page[UnknownPodOut], "/v1/pods/unknown", at_most=100)
    lines = [f"{pod.name} on {pod.node or 'no node'}" for pod in pods[:_SHOWN]]
    return Matter(
        "Unknown pods", "/admin/pods", "Every pod is accounted for.", "that no job accounts for.", lines, len(pods)
    )


ROUTES = (WebRoute("GET", "/admin", overview_page, PageAccess.ADMIN),)
