"""A TCP connection to a port in a job (`direct-tcpip`: `ssh -L`, `-D`, and editors)."""

import asyncio

from asyncssh.session import SSHTCPSession

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import InputClosedError, PodConnection
from reservation_core.runtime.ssh.counts import StreamKind
from reservation_core.runtime.ssh.flow import Flow, Host


class PortStream(Flow, SSHTCPSession[bytes]):
    """Passes bytes between a channel and a port that is connected."""

    kind = StreamKind.PORT

    def __init__(self, host: Host, port: PodConnection) -> None:
        super().__init__(host)
        self._port = port

    async def serve(self) -> None:
        """Pass bytes on until both directions have ended."""
        feeding = asyncio.create_task(self._feed())
        try:
            while data := await self._port.read():
                await self.send(data)
            self.send_end()
            await feeding
        except ClusterUnavailableError:
            self.channel.abort()
        finally:
            feeding.cancel()
            try:
                await asyncio.gather(feeding, return_exceptions=True)
            finally:  # the end of the connection may cancel this again
                await self._port.close()

    async def discard(self) -> None:
        await self._port.close()

    async def _feed(self) -> None:
        try:
            while data := await self.receive():
                await self._port.write(data)
            await self._port.close_input()
        except InputClosedError:
            return  # the other direction may go on
