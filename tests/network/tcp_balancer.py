"""One address before several servers, as a Service is: each connection goes to the next server that takes it."""

import asyncio
from collections.abc import Iterable

from tests.kubernetes.background import Background
from tests.network.stream_server import stream_server


class TcpBalancer(Background):
    """Forwards bytes. `port` is where it listens, on 127.0.0.1, once it is started."""

    def __init__(self, ports: Iterable[int]) -> None:
        super().__init__("the balancer")
        self._ports = list(ports)
        self._turn = 0
        self.port = 0
        self.taken = dict.fromkeys(self._ports, 0)

    def leave(self, port: int) -> None:
        """Send nothing new to this server; connections that are open stay."""
        self._ports = [other_port for other_port in self._ports if other_port != port]

    async def _live(self) -> None:
        async with stream_server(self._forward) as self.port:
            self._is_up()
            await asyncio.get_running_loop().create_future()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await self._next()
        if behind is None:
            return
        answers, questions = behind
        try:
            _, pending = await asyncio.wait(
                [asyncio.create_task(_copy(reader, questions)), asyncio.create_task(_copy(answers, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        finally:
            questions.transport.abort()

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in range(len(self._ports)):
            self._turn += 1
            port = self._ports[self._turn % len(self._ports)]
            try:
                opened = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            self.taken[port] += 1
            return opened
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side is gone. What was said last is sent on."""
    try:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    except OSError:
        return
