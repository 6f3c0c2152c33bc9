"""The page Now: all nodes and GPUs, their holders and ends, and when the next GPU is free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.responses import Response

from api_service.access.sight import Sight, sight_of
from api_service.problems import ProblemError
from api_service.web.finding.address_words import chosen_word
from api_service.web.fleet.card_tiles import MEANINGS, WORDS, TileState, TileWriter, state_of, word_of
from api_service.web.fleet.fleet import FleetNode, FleetPicture, counts
from api_service.web.fleet.node_filter import NodeFilter, NodeOrder, NodeView
from api_service.web.fleet.node_groups import NodeGroup, one_group
from api_service.web.fleet.node_markup import Density, Look
from api_service.web.fleet.use_map import MOST_CELLS, percent_of, use_map
from api_service.web.live import USE
from api_service.web.rendering import json_data
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from api_service.web.words import clock
from reservation_core.ports.nodes.cards_now import GpuNow

LARGE_UP_TO = 64
"""More GPUs are shown as small tiles, without words."""
TILES_UP_TO = 320
"""More GPUs are shown as a heat map of their nodes, unless tiles are asked for."""
MOST_TILES = 1024
_MOST_TYPED = 253
_MOST_ON_A_NODE = 3
"""Digits of a number of GPUs on one node."""
_PROCESS = token_hex(4)
"""Versions are counted by each process."""


@dataclass(frozen=True, slots=True)
class NowView:
    """One viewer's page: the nodes to show, and how. `too_many`: tiles were asked for, of more GPUs than are drawn."""

    fleet: FleetPicture
    look: Look
    groups: Sequence[NodeGroup]
    cards: int
    too_many: bool
    token: str


@dataclass(frozen=True, slots=True)
class CardDetails:
    """One GPU for one viewer. `links`: the pages of its holder and follower by id, where the viewer may open them.

    `use`: its utilisation in percent; None: no data. `with_use`: the page shows use.
    """

    card: GpuNow
    node: FleetNode
    state: TileState
    word: str
    meaning: str
    holder: str | None
    follower: str | None
    links: Mapping[str, str]
    overdue: bool
    can_be_had: bool
    use: int | None
    with_use: bool


async def now_page(visit: Visit) -> Response:
    """Show GPUs, filtered by `?type=h100&free=4&mine=yes`; `card=NODE/INDEX` shows one above all others."""
    chosen = _filter(visit)
    view = await _view(visit, chosen)
    shown: dict[str, Any] = {
        "view": view,
        "chosen": chosen,
        "counts": counts(view.fleet, visit.principal.user_id),
        "states": [(state, WORDS[state], MEANINGS[state]) for state in TileState],
    }
    if view.look.density is Density.USE:
        use = use_map(view.groups, await visit.uses.use(), view.look)
        shown |= {"groups": (), "most_tiles": MOST_CELLS, "use": use}
    else:
        groups = [(group, visit.nodes.group(group, view.look)) for group in view.groups]
        shown |= {"groups": groups, "most_tiles": MOST_TILES, "use": None}
    if visit.partial:
        if Density.USE in (view.look.density, _density_of_sender(visit)):
            # Loading thousands of cells is quick, morphing a page into them is not.
            return visit.go(f"/now?{chosen.query}")
        return visit.part("_now.html", **shown)
    address = visit.query("card")
    card = await _card(visit, view.fleet, view.look.sight, address) if address else None
    live = f"now {USE}" if view.look.density is Density.USE else "now"
    return visit.page("now.html", title="Now", live=live, card=card, **shown)


async def now_changes(visit: Visit) -> Response:
    """The parts that changed since version `since`; 204 without any."""
    chosen = _filter(visit)
    view = await _view(visit, chosen)
    since = visit.query("since")
    if since == view.token:
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    behind = _same_but_older(since, view.token)
    whole = behind is None or behind < view.fleet.layout or chosen.moves_nodes
    changed = [
        (group, [node for node in group.nodes if whole or behind is None or node.version > behind])
        for group in view.groups
    ]
    draw = visit.nodes.all if whole else visit.nodes.swaps
    return visit.part(
        "_now_changes.html",
        view=view,
        chosen=chosen,
        counts=counts(view.fleet, visit.principal.user_id),
        whole=whole,
        groups=[(group, draw(nodes, view.look)) for group, nodes in changed if nodes],
    )


async def now_use(visit: Visit) -> Response:
    """What an open heat map of use shows now: the cells in the order of the page, groups, steps and their words."""
    chosen = replace(_filter(visit), view=NodeView.USE)
    view = await _view(visit, chosen)
    use = await visit.uses.use()
    shown = use_map(view.groups, use, view.look)
    data = {
        "mark": shown.mark,
        "at": clock(use.read_at, visit.zone, visit.now),
        "cells": [[cell.step, cell.said] for cell in shown.cells] if shown.drawn else [],
        "sums": [group.sum for group in shown.groups],
        "steps": [count for _, _, count in shown.steps],
    }
    return json_data(visit.request, data)


async def card_part(visit: Visit) -> Response:
    """`?card=NODE/INDEX`: all details of one GPU."""
    fleet = await visit.fleet.fleet()
    sight = await _sight(visit)
    return visit.part("_card.html", card=await _card(visit, fleet, sight, visit.query("card")))


def _density_of_sender(visit: Visit) -> Density | None:
    """Whether the page that asks for a part shows the use of GPUs."""
    sent_from = parse_qs(urlsplit(visit.request.headers.get("hx-current-url", "")).query)
    return Density.USE if sent_from.get("view") == [NodeView.USE.value] else None


def _filter(visit: Visit) -> NodeFilter:
    kind, rack, node, free = (visit.query(name) for name in ("type", "rack", "node", "free"))
    if max(len(kind), len(rack), len(node)) > _MOST_TYPED:
        raise ProblemError(
            422, "invalid_request", f"Type, rack and node have at most {_MOST_TYPED} letters. Shorten them."
        )
    if free and not (free.isascii() and free.isdecimal() and len(free) <= _MOST_ON_A_NODE):
        raise ProblemError(
            422, "invalid_request", "Free GPUs on one node are a number from 1 to 999, such as 4. Correct it."
        )
    return NodeFilter(
        kind,
        rack,
        node,
        int(free or 0),
        visit.query("mine") == "yes",
        chosen_word(NodeOrder, visit.query("sort"), "sort", "This page") or NodeOrder.NAME,
        chosen_word(NodeView, visit.query("view"), "view", "This page") or NodeView.AUTO,
    )


async def _view(visit: Visit, chosen: NodeFilter) -> NowView:
    fleet = await visit.fleet.fleet()
    sight = await _sight(visit)
    kind = chosen.kind or None
    look = Look(sight, visit.zone, visit.now, kind, chosen.mine)
    selection = visit.selections.of(fleet, chosen, look)
    look = replace(look, density=_density(chosen.view, selection.cards))
    token = _token(visit, fleet, sight, look.density)
    large = look.density is Density.LARGE
    groups = one_group(selection.nodes, kind) if large else selection.groups
    too_many = chosen.view is NodeView.TILES and look.density is Density.MAP
    too_many = too_many or (chosen.view is NodeView.USE and selection.cards > MOST_CELLS)
    return NowView(fleet, look, groups, selection.cards, too_many, token)


def _density(view: NodeView, cards: int) -> Density:
    """How that many GPUs are drawn."""
    if view is NodeView.USE:
        return Density.USE
    if view is NodeView.MAP or cards > (MOST_TILES if view is NodeView.TILES else TILES_UP_TO):
        return Density.MAP
    return Density.LARGE if cards <= LARGE_UP_TO else Density.SMALL


async def _sight(visit: Visit) -> Sight:
    services = visit.services
    async with services.runtime.uow(one_statement=True) as uow:
        return await sight_of(uow, visit.principal, services.settings.holders)


def _token(visit: Visit, fleet: FleetPicture, sight: Sight, density: Density) -> str:
    """The version of a page. A page can be updated in parts only if all but the last part is the same."""
    fellows = "all" if sight.fellows is None else format(hash(frozenset(sight.fellows)) & 0xFFFFFFFF, "x")
    return f"{_PROCESS}.{visit.now.astimezone(visit.zone):%Y%m%d}.{fellows}.{density}.{fleet.version}"


def _same_but_older(since: str, token: str) -> int | None:
    """The version of the requesting page, if it can be updated in parts."""
    before, _, version = since.rpartition(".")
    if before != token.rpartition(".")[0] or not version.isascii() or not version.isdecimal() or len(version) > 15:
        return None
    return int(version)


async def _card(visit: Visit, fleet: FleetPicture, sight: Sight, chosen: str) -> CardDetails:
    """All details of one GPU. Raises ProblemError (404) for an unknown one."""
    name, _, index = chosen.rpartition("/")
    node = fleet.by_name.get(name)
    card = _of_index(node, index)
    if node is None or card is None:
        raise ProblemError(404, "no_such_card", f"There is no GPU {chosen[:_MOST_TYPED]} any more. Choose another GPU.")
    with_use = Density.USE in (_density_of_sender(visit), visit.query("view"))
    state = state_of(card, available=node.now.available, user_id=visit.principal.user_id)
    writer = TileWriter(sight, lambda when: clock(when, visit.zone, visit.now))
    reachable = [
        hold
        for hold in (card.holder, card.follower)
        if hold is not None and (hold.user_id == visit.principal.user_id or visit.principal.is_admin)
    ]
    return CardDetails(
        card=card,
        node=node,
        state=state,
        word=word_of(card, state),
        meaning=MEANINGS[state],
        holder=None if card.holder is None else writer.whose(card.holder),
        follower=None if card.follower is None else writer.whose(card.follower),
        links={
            hold.id: f"/jobs/{hold.id}" if hold.id.startswith("job-") else f"/bookings/{hold.id}"
            for hold in reachable
            if not hold.id.startswith("mnt-")
        },
        overdue=card.holder is not None and card.holder.ends_at <= visit.now,
        can_be_had=state in (TileState.FREE, TileState.SOON),
        use=percent_of(await visit.uses.of_gpu(node.name, card.index)) if with_use else None,
        with_use=with_use,
    )


def _of_index(node: FleetNode | None, index: str) -> GpuNow | None:
    return next((card for card in (() if node is None else node.cards) if str(card.index) == index), None)


ROUTES = (
    WebRoute("GET", "/now", now_page),
    WebRoute("GET", "/now/changes", now_changes, part_of="/now"),
    WebRoute("GET", "/now/use", now_use),
    WebRoute("GET", "/now/card", card_part, part_of="/now"),
)
