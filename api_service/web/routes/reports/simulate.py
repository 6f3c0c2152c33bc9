"""What other terms would have done: the queue's past through the planner, as today and changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from api_service.web.plots import curve_plot
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import MAX_NODES
from reservation_core.contracts.policy import LONGEST
from reservation_core.contracts.simulations import SimulationOut
from reservation_core.domain.simulation.answer_words import table, wait_text

_FIELDS = {"days": "90", "more": "0", "type": "", "order": "", "share": ""}
_ORDERS = {"": "As today", "area": "Small jobs first", "arrival": "First come, first served"}
_SHARES = {"": "As today", "P1D": "Half-life of a day", "P7D": "Half-life of a week", "P30D": "Half-life of 30 days"}
_NO_SHARES = {"PT0S": "No fair shares"}
_LISTED = 20
_MOST_DAYS = LONGEST.days


@dataclass(frozen=True, slots=True)
class _Shown:
    """An answer with its table, its curves, and the waits of users, longest first."""

    found: SimulationOut
    rows: list[tuple[str, str, str]]
    plot: Any
    users: list[tuple[str, str, str]]


async def simulate_page(visit: Visit) -> Response:
    """Show the form, and with a time what came of it."""
    fields = {name: visit.query(name, usual) for name, usual in _FIELDS.items()}
    shown, problem = None, None
    if visit.query("days"):
        try:
            shown = _shown(await visit.rest.post(SimulationOut, "/v1/simulations", _asked(fields)))
        except RestProblemError as refused:
            problem = refused
    gpus = await visit.services.reads(lambda uow: uow.inventory.gpu_counts())
    return visit.page(
        "simulate.html",
        title="Simulate the queue",
        status=200 if problem is None else problem.status,
        fields=fields,
        gpu_types=sorted({gpu_type for gpu_type, _, _ in gpus}),
        orders=_ORDERS,
        shares=_SHARES | _NO_SHARES,
        shown=shown,
        problem=problem,
    )


def _asked(fields: Mapping[str, str]) -> dict[str, Any]:
    """The request. Raises RestProblemError for numbers that the form does not take."""
    days, more = fields["days"], fields["more"] or "0"
    if not (_is_within(days, 1, _MOST_DAYS) and _is_within(more, 0, MAX_NODES)):
        detail = f"Give 1 to {_MOST_DAYS} days and at most {MAX_NODES} nodes, as whole numbers."
        raise RestProblemError.because(422, detail)
    asked: dict[str, Any] = {"history": int(days) * 86_400}
    if int(more):
        asked["nodes_added"] = {fields["type"] or "gpu": int(more)}
    if fields["order"]:
        asked["order"] = fields["order"]
    if fields["share"]:
        asked["fair_share_half_life"] = fields["share"]
    return asked


def _is_within(text: str, least: int, most: int) -> bool:
    return text.isdecimal() and len(text) < 8 and least <= int(text) <= most


def _shown(found: SimulationOut) -> _Shown:
    curves = [[(point.wait_s, point.share) for point in side.curve] for side in (found.today, found.changed)]
    changed = {line.user: line.wait_s for line in found.changed.by_user}
    users = [
        (line.user, wait_text(line.wait_s), wait_text(changed[line.user]))
        for line in found.today.by_user[:_LISTED]
        if line.user in changed
    ]
    return _Shown(found, table(found.today, found.changed, found.bookings), curve_plot(*curves), users)


ROUTES = (WebRoute("GET", "/simulate", simulate_page),)
