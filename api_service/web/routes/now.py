"""The page Now: all nodes and GPUs, their holders and ends, and when the next GPU is free."""

from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from api_service.access.sight import Sight, sight_of
from api_service.problems import ProblemError
from api_service.web.fleet.card_tiles import MEANINGS, WORDS, TileState, TileWriter, state_of
from api_service.web.fleet.fleet import FleetNode, FleetPicture, counts
from api_service.web.fleet.node_markup import Look
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from api_service.web.words import clock
from reservation_core.ports.nodes.cards_now import GpuNow

LARGE_UP_TO = 64
"""More GPUs are shown as small tiles, without words."""
_MOST_TYPED = 253
_PROCESS = token_hex(4)
"""Versions are counted by each process."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The requested filter: GPUs of this type, of nodes with such names, of the viewer."""

    kind: str
    node: str
    mine: bool

    @property
    def query(self) -> str:
        """The filter as a query, `&` before each parameter."""
        given = {"type": self.kind, "node": self.node, "mine": "yes" if self.mine else ""}
        return "".join(f"&{urlencode({name: value})}" for name, value in given.items() if value)

    def names(self, node: FleetNode, *, exactly: bool) -> bool:
        """Whether the filter matches this node's name."""
        return node.name == self.node if exactly else self.node.casefold() in node.name.casefold()


@dataclass(frozen=True, slots=True)
class NowView:
    """One viewer's page: the nodes to show, and how."""

    fleet: FleetPicture
    look: Look
    nodes: tuple[FleetNode, ...]
    cards: int
    token: str


@dataclass(frozen=True, slots=True)
class CardDetails:
    """One GPU for one viewer. `links`: the pages of its holder and follower by id, where the viewer may open them."""

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


async def now_page(visit: Visit) -> Response:
    """Show GPUs, filtered by `?type=h100&node=gpu-1&mine=yes`; `card=NODE/INDEX` shows one above all others."""
    wish = _wish(visit)
    view = await _view(visit, wish)
    shown: dict[str, Any] = {
        "view": view,
        "wish": wish,
        "counts": counts(view.fleet, visit.principal.user_id),
        "drawn": [visit.nodes.of(node, view.look) for node in view.nodes],
        "states": [(state, WORDS[state], MEANINGS[state]) for state in TileState],
    }
    if visit.partial:
        return visit.part("_now.html", **shown)
    chosen = visit.query("card")
    card = _card(visit, view.fleet, view.look.sight, chosen) if chosen else None
    return visit.page("now.html", title="Now", live="now", card=card, **shown)


async def now_changes(visit: Visit) -> Response:
    """The parts that changed since version `since`; 204 without any."""
    wish = _wish(visit)
    view = await _view(visit, wish)
    since = visit.query("since")
    if since == view.token:
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    behind = _same_but_older(since, view.token)
    # With this filter, a change can add or remove nodes.
    whole = behind is None or behind < view.fleet.layout or wish.mine
    changed = view.nodes if whole or behind is None else [node for node in view.nodes if node.version > behind]
    return visit.part(
        "_now_changes.html",
        view=view,
        wish=wish,
        counts=counts(view.fleet, visit.principal.user_id),
        whole=whole,
        drawn=[(visit.nodes.of if whole else visit.nodes.swap)(node, view.look) for node in changed],
    )


async def card_part(visit: Visit) -> Response:
    """`?card=NODE/INDEX`: all details of one GPU."""
    fleet = await visit.fleet.fleet()
    sight = await _sight(visit)
    return visit.part("_card.html", card=_card(visit, fleet, sight, visit.query("card")))


def _wish(visit: Visit) -> Wish:
    kind, node = visit.query("type"), visit.query("node")
    if max(len(kind), len(node)) > _MOST_TYPED:
        raise ProblemError(422, "invalid_request", f"Type and node have at most {_MOST_TYPED} letters. Shorten them.")
    return Wish(kind, node, visit.query("mine") == "yes")


async def _view(visit: Visit, wish: Wish) -> NowView:
    fleet = await visit.fleet.fleet()
    sight = await _sight(visit)
    kind = wish.kind or None
    look = Look(sight, visit.zone, visit.now, kind, wish.mine, large=False)
    exactly = wish.node in fleet.by_name
    everything = kind is None and not wish.mine
    named = [node for node in fleet.nodes if not wish.node or wish.names(node, exactly=exactly)]
    here = [(node, len(node.cards) if everything else sum(map(look.shows, node.cards))) for node in named]
    nodes = tuple(node for node, cards in here if cards or everything)
    cards = sum(cards for _, cards in here)
    look = Look(sight, visit.zone, visit.now, kind, wish.mine, large=cards <= LARGE_UP_TO)
    return NowView(fleet, look, nodes, cards, _token(visit, fleet, sight, large=look.large))


async def _sight(visit: Visit) -> Sight:
    services = visit.services
    async with services.runtime.uow(one_statement=True) as uow:
        return await sight_of(uow, visit.principal, services.settings.holders)


def _token(visit: Visit, fleet: FleetPicture, sight: Sight, *, large: bool) -> str:
    """The version of a page. A page can be updated in parts only if all but the last part is the same."""
    fellows = "all" if sight.fellows is None else format(hash(frozenset(sight.fellows)) & 0xFFFFFFFF, "x")
    size = "large" if large else "small"
    return f"{_PROCESS}.{visit.now.astimezone(visit.zone):%Y%m%d}.{fellows}.{size}.{fleet.version}"


def _same_but_older(since: str, token: str) -> int | None:
    """The version of the requesting page, if it can be updated in parts."""
    before, _, version = since.rpartition(".")
    if before != token.rpartition(".")[0] or not version.isascii() or not version.isdecimal() or len(version) > 15:
        return None
    return int(version)


def _card(visit: Visit, fleet: FleetPicture, sight: Sight, chosen: str) -> CardDetails:
    """All details of one GPU. Raises ProblemError (404) for an unknown one."""
    name, _, index = chosen.rpartition("/")
    node = fleet.by_name.get(name)
    card = _of_index(node, index)
    if node is None or card is None:
        raise ProblemError(404, "no_such_card", f"There is no card {chosen[:_MOST_TYPED]} any more. Choose another.")
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
        word=WORDS[state],
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
    )


def _of_index(node: FleetNode | None, index: str) -> GpuNow | None:
    return next((card for card in (() if node is None else node.cards) if str(card.index) == index), None)


ROUTES = (
    WebRoute("GET", "/now", now_page),
    WebRoute("GET", "/now/changes", now_changes),
    WebRoute("GET", "/now/card", card_part),
)
