"""HTTP without retries: one request and its answer, over connections that are kept for the next request.

Where no proxy is between, the standard library calls the server: loading httpx costs more processor time than all else
of a call (docs/design/0043). httpx calls through proxies, of which it knows all kinds.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from socket import IPPROTO_TCP, SO_KEEPALIVE, SOL_SOCKET, TCP_NODELAY
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urlsplit

from gpu_dev.server.connection import is_loopback

if TYPE_CHECKING:
    import ssl

CONNECT_S = 5.0
USUAL_SILENCE_S = 30.0
# Streams may be silent for long: keep-alive probes of the connection tell a dead peer from a quiet one.
_LINUX_KEEPALIVE = {4: 30, 5: 10, 6: 3}  # TCP_KEEPIDLE, TCP_KEEPINTVL (seconds), TCP_KEEPCNT
SOCKET_OPTIONS = [
    (IPPROTO_TCP, TCP_NODELAY, 1),
    (SOL_SOCKET, SO_KEEPALIVE, 1),
    *((IPPROTO_TCP, name, value) for name, value in _LINUX_KEEPALIVE.items()),
]
_PORTS = {"http": 80, "https": 443}


class TransportError(Exception):
    """There is no whole answer; the text says why."""


class SilenceError(TransportError):
    """Nothing came within the time."""

    def __init__(self) -> None:
        super().__init__("no answer in time")


class TlsError(TransportError):
    """The server speaks TLS where it should not, does not where it should, or can't be trusted.

    The text says so of the server; another try ends alike. `other_scheme` is that of the address that would do.
    """

    def __init__(self, text: str, *, other_scheme: str | None = None) -> None:
        super().__init__(text)
        self.other_scheme = other_scheme


class BadAddressError(Exception):
    """The server's address can't be asked."""


class Body(Protocol):
    """What follows an answer's headers. All methods raise TransportError."""

    def read(self) -> bytes:
        """All of it."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """Its parts as they come."""
        ...

    def close(self) -> None: ...


class Incoming(NamedTuple):
    """The beginning of an answer; header names are in lower case."""

    status: int
    phrase: str
    headers: Mapping[str, str]
    body: Body


class Transport(Protocol):
    """Sends requests to one server; safe to use from several threads."""

    def send(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, silence_s: float | None
    ) -> Incoming:
        """Send a request, and return once the answer's headers are there.

        `target` is path and query; the answer may be silent for `silence_s`. Raises TransportError, BadAddressError.
        """
        ...

    def close(self) -> None: ...


def transport_to(server: str) -> Transport:
    """A transport that uses the environment's proxies, but never for a server on this machine."""
    proxy = proxy_for_server(server)
    if proxy is not None:
        from gpu_dev.server.httpx_transport import HttpxTransport, proxied

        return HttpxTransport(server, proxied(proxy))
    from gpu_dev.server.direct_transport import DirectTransport

    return DirectTransport(server, trusted() if server.startswith("https:") else None)


def trusted() -> "ssl.SSLContext":
    """The authorities that httpx trusts: those of SSL_CERT_FILE or SSL_CERT_DIR, else certifi's."""
    import ssl

    if file := os.environ.get("SSL_CERT_FILE"):
        context = ssl.create_default_context(cafile=file)
    elif folder := os.environ.get("SSL_CERT_DIR"):
        context = ssl.create_default_context(capath=folder)
    else:
        import certifi

        context = ssl.create_default_context(cafile=certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def proxy_for_server(server: str) -> str | None:
    """The environment's proxy for a server; None for servers on this machine."""
    if is_loopback(server):
        return None
    if sys.platform != "darwin" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies

    from reservation_core.domain.network.environment_proxies import proxy_for

    url = urlsplit(server)
    return proxy_for(url.scheme, url.hostname or "", url.port or _PORTS.get(url.scheme), getproxies())
