"""A TCP connection inside a pod, over one portforward."""

import asyncio
from collections.abc import Awaitable, Callable

from reservation_core.adapters.kubernetes.sessions.channels import ChannelSocket
from reservation_core.ports.sessions.pod_streams import InputClosedError, PortClosedError

PROTOCOLS = ("v4.channel.k8s.io",)

_DATA = 0
_ERRORS = 1
_PORT_BYTES = 2
_REFUSED_WITHIN_S = 0.1

FindLoss = Callable[[], Awaitable[object]]


class ForwardedPort:
    """A connection to a port. Kubernetes says nothing when it is open, only when it was refused.

    `find_loss` raises PodNotReachableError unless the pod runs.
    """

    def __init__(
        self, socket: ChannelSocket, port: int, find_loss: FindLoss, forget: Callable[["ForwardedPort"], None]
    ) -> None:
        self._socket = socket
        self._port = port
        self._find_loss = find_loss
        self._forget = forget
        self._early = b""
        self._heard = False
        self._over = False
        self._input_closed = False

    async def begin(self) -> None:
        """Wait for a moment whether the connection is refused; a later refusal is raised by `read`.

        Raises PortClosedError, PodNotReachableError and ClusterUnavailableError.
        """
        for _ in (_DATA, _ERRORS):  # both channels begin with the port
            received = await self._socket.receive()
            if received is None or len(received[1]) != _PORT_BYTES:
                await self._find_loss()
                raise self._closed_error()
        try:
            async with asyncio.timeout(_REFUSED_WITHIN_S):
                received = await self._socket.receive()
        except TimeoutError:
            return
        self._early = await self._content(received)

    async def read(self) -> bytes:
        """As the port says. Raises PortClosedError for a connection that was refused after a while."""
        early, self._early = self._early, b""
        return early or (b"" if self._over else await self._content(await self._socket.receive()))

    async def write(self, data: bytes) -> None:
        if self._over or self._input_closed:
            raise InputClosedError("The connection is closed.")
        await self._socket.send(_DATA, data)

    async def close_input(self) -> None:
        """Take no more input. Kubernetes can't send the end: the pod sees it when the connection is closed."""
        self._input_closed = True

    async def close(self) -> None:
        self._forget(self)
        await self._socket.close()

    async def _content(self, received: tuple[int, bytes] | None) -> bytes:
        """The data received; none at the end. Raises why there is an end before any data."""
        if received is not None and received[0] == _DATA:
            self._heard = True
            return received[1]
        self._over = True
        if received is not None and not self._heard:
            await self._find_loss()
            raise self._closed_error()
        return b""

    def _closed_error(self) -> PortClosedError:
        return PortClosedError(
            f"No process of the job accepts connections at port {self._port}. Start one there, and try again."
        )
