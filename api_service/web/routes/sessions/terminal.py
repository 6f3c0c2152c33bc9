"""The terminal on a job's page: a shell in the job over a WebSocket of the pages' own address."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket

from api_service.access import token_reach
from api_service.routes.sessions.programs import Rank, TerminalName
from api_service.services import Services
from api_service.sessions.channels import Channel
from api_service.sessions.handshakes import read_query, refusal, subprotocol_of, visitor_of
from api_service.sessions.streaming import stream_program
from api_service.web.rendering import json_data
from api_service.web.routing import SocketRoute, WebRoute
from api_service.web.visit import Visit
from reservation_core.domain.sessions.ways_in import Way
from reservation_core.domain.statuses import TokenScope
from reservation_core.ports.sessions.pod_streams import (
    NoTerminalError,
    PodNotReachableError,
    Program,
    RunningProgram,
    Terminal,
    TerminalSize,
)
from reservation_core.runtime.sessions.connections import Connection
from reservation_core.usecases.sessions.enter import find_job_to_enter

TAKEN = 5
"""The channel on which a page says how many bytes of output it has shown since the last time."""
KEY = 6
"""The channel on which a page gets the key of its terminal, by which it joins it again."""
_MOST_UNTAKEN = 1024 * 1024
_LENGTH = 4
_NEW_ONE = b"\x1b[2m(The earlier terminal has ended. This is a new one.)\x1b[0m\r\n"


class TerminalQuery(BaseModel):
    """The size of the terminal; `attach`: join the user's newest, or that with the key `terminal`, if it is open."""

    model_config = ConfigDict(extra="forbid")

    columns: Annotated[int, Field(ge=1, le=10_000)] = 80
    rows: Annotated[int, Field(ge=1, le=10_000)] = 24
    rank: Rank = 0
    attach: bool = False
    terminal: TerminalName | None = None


class PageSocket(WebSocket):
    """A page's WebSocket. It tells its terminal's key, as scripts can't read headers, and sends output as fast as the
    page shows it, as scripts can't slow down what comes."""

    def __init__(self, socket: WebSocket, terminal_key: str | None) -> None:
        super().__init__(socket.scope, socket.receive, socket.send)
        self.client_state, self.application_state = socket.client_state, socket.application_state
        self._terminal_key = terminal_key
        self._untaken = 0
        self._room = asyncio.Event()
        self._room.set()

    async def accept(
        self, subprotocol: str | None = None, headers: Iterable[tuple[bytes, bytes]] | None = None
    ) -> None:
        """Accept the connection, and tell the key."""
        await super().accept(subprotocol, headers)
        if self._terminal_key is not None:
            await self.send_bytes(bytes((KEY,)) + self._terminal_key.encode())

    async def receive(self) -> Message:
        """The next message that is not on the channel TAKEN."""
        while True:
            message = await super().receive()
            content = message.get("bytes")
            if not content or content[0] != TAKEN:
                return message
            self._untaken = max(0, self._untaken - int.from_bytes(content[1 : 1 + _LENGTH], "big"))
            if self._untaken < _MOST_UNTAKEN:
                self._room.set()

    async def send_bytes(self, data: bytes) -> None:
        """Send a message; output waits until the page has shown most of what was sent before."""
        if data[0] == Channel.STDOUT:
            await self._room.wait()
            self._untaken += len(data) - 1
            if self._untaken >= _MOST_UNTAKEN:
                self._room.clear()
        await super().send_bytes(data)


async def serve_terminal(socket: WebSocket, services: Services) -> None:
    """A login shell in a terminal, or the terminal that is open, until it ends or the page leaves."""
    token_reach.require_scopes(socket.scope["principal"], frozenset({TokenScope.SESSIONS}))
    query = read_query(socket, TerminalQuery)
    subprotocol = subprotocol_of(socket)
    visitor = visitor_of(socket.scope, services)
    job_id = socket.path_params["job_id"]
    async with services.connections.enter(visitor, job_id, query.rank, Way.TERMINAL) as connection:
        try:
            program, is_new = await _program(services, connection, query, visitor.user)
        except PodNotReachableError as error:
            raise refusal(error) from error
        first = b""
        if is_new:
            first = (_NEW_ONE if query.attach else b"") + connection.entered.greeting.encode()
        await stream_program(
            PageSocket(socket, program.terminal_key),
            program,
            connection,
            subprotocol=subprotocol,
            terminal=True,
            first=first,
        )


async def _program(
    services: Services, connection: Connection, query: TerminalQuery, person: str
) -> tuple[RunningProgram, bool]:
    """The terminal's program, and whether it was started now. A page comes back to its own user's terminals alone."""
    streams, pod = services.runtime.pod_streams, connection.entered.pod
    size = TerminalSize(query.columns, query.rows)
    if query.attach:
        with suppress(NoTerminalError):  # its shell has ended, or the cluster keeps none
            for kept in await streams.terminals(pod):
                if kept.person == person and query.terminal in (None, kept.key):
                    return await streams.attach(pod, size, name=kept.key), False
    return await streams.run(pod, Program(terminal=Terminal(size), person=person)), True


async def check_terminal(visit: Visit) -> Response:
    """Say whether a terminal could be opened: scripts can't read why a WebSocket was refused."""
    token_reach.require_scopes(visit.principal, frozenset({TokenScope.SESSIONS}))
    async with visit.services.runtime.uow() as uow:
        await find_job_to_enter(uow, visit.path("job_id"), visit.principal.user_id)
    return json_data(visit.request, {"open": True})


ROUTES = (WebRoute("GET", "/jobs/{job_id}/terminal", check_terminal),)
SOCKETS = (SocketRoute("/jobs/{job_id}/terminal", serve_terminal),)
