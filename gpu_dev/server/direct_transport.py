"""HTTP by the standard library, straight to the server."""

import http.client
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from ssl import SSLContext
from urllib.parse import quote, urlsplit

from gpu_dev.server.tls_failures import answer_failure, connection_failure
from gpu_dev.server.transport import (
    CONNECT_S,
    SOCKET_OPTIONS,
    USUAL_SILENCE_S,
    BadAddressError,
    Incoming,
    SilenceError,
)

_KEPT_S = 5.0
"""How long an unused connection is kept: something on the way may have forgotten it by then."""
_CHUNK = 65_536
_HTTP_1_0 = 10
_PATH_CHARACTERS = "/%:@!$&'()*+,;=~"
"""Characters that stay in the server's path beside letters and digits; `%` because the path may be quoted already."""


class DirectTransport:
    """Keeps connections that are not in use. `tls` is None for plain HTTP."""

    def __init__(self, server: str, tls: SSLContext | None) -> None:
        self._url = urlsplit(server)
        self._path = quote(self._url.path, safe=_PATH_CHARACTERS)
        self._tls = tls
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def send(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, silence_s: float | None
    ) -> Incoming:
        connection = self._kept() or self._connected()
        try:
            with _failures_named():
                connection.sock.settimeout(USUAL_SILENCE_S)
                # A server that refuses a body may answer before it has read all of it.
                with suppress(BrokenPipeError):
                    _write(connection, method, self._path + target, headers, content)
                connection.sock.settimeout(silence_s)
                response = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        found = {name.lower(): value for name, value in response.headers.items()}
        return Incoming(response.status, response.reason, found, _DirectBody(self, connection, response))

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    def keep(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose answer was read for the next request."""
        if connection.sock is not None:
            self._idle.append((time.monotonic(), connection))

    def _kept(self) -> http.client.HTTPConnection | None:
        while self._idle:
            try:
                since, connection = self._idle.pop()
            except IndexError:  # another thread was quicker
                return None
            # What can be read without a request is the server's end of the connection.
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if time.monotonic() - since < _KEPT_S and not poll.poll(0):
                return connection
            connection.close()
        return None

    def _connected(self) -> http.client.HTTPConnection:
        try:
            connection = _Connection(self._url.hostname or "", self._url.port, self._tls)
            connection.connect()
        except TimeoutError as error:
            raise SilenceError from error
        except OSError as error:
            raise connection_failure(error) from error
        except (ValueError, OverflowError, http.client.HTTPException) as error:
            raise BadAddressError(str(error)) from error
        return connection


class _Response(http.client.HTTPResponse):
    """An answer without the informational ones before it, such as 103; the library skips 100 alone."""

    def begin(self) -> None:
        super().begin()
        while self.status // 100 == 1 and self.status != HTTPStatus.SWITCHING_PROTOCOLS:
            self.headers = self.msg = None  # type: ignore[assignment] # as before the first answer
            super().begin()
        if self.status == HTTPStatus.SWITCHING_PROTOCOLS:
            self.will_close = True  # what follows is not HTTP


class _Connection(http.client.HTTPConnection):
    """A connection with keep-alive probes, over TLS where `tls` is given."""

    response_class = _Response

    def __init__(self, host: str, port: int | None, tls: SSLContext | None) -> None:
        if tls is not None:
            self.default_port = http.client.HTTPS_PORT
        # Without a port the library looks for one in the host, and cuts an IPv6 address at its last colon.
        super().__init__(host, self.default_port if port is None else port)
        self._tls = tls

    def connect(self) -> None:
        # As bytes a name needs no codec for international names, which costs as much to load as all of TLS.
        host = self.host.encode() if self.host.isascii() else self.host
        self.sock = socket.create_connection((host, self.port), CONNECT_S)  # type: ignore[arg-type]
        for option in SOCKET_OPTIONS:
            self.sock.setsockopt(*option)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)


class _DirectBody:
    def __init__(
        self,
        transport: DirectTransport,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._response = response

    def read(self) -> bytes:
        with _failures_named():
            content = self._response.read()
            if not content:
                self._refuse_cut_headers()
            return content

    def chunks(self) -> Iterator[bytes]:
        is_empty = True
        while True:
            with _failures_named():
                chunk = self._response.read1(_CHUNK)
                if not chunk and self._response.length:
                    raise http.client.IncompleteRead(b"", self._response.length)
                if not chunk and is_empty:
                    self._refuse_cut_headers()
            if not chunk:
                return
            is_empty = False
            yield chunk

    def close(self) -> None:
        if self._response.isclosed():  # it was read to its end
            self._transport.keep(self._connection)
        else:
            self._response.close()
            self._connection.close()

    def _refuse_cut_headers(self) -> None:
        """Refuse an empty body of HTTP/1.1 that has no length, and ends with a connection that was to stay.

        The library takes the end of the connection for that of the headers, so these may have been cut.
        """
        response = self._response
        has_end = response.length is not None or response.chunked
        if not has_end and response.version > _HTTP_1_0 and "close" not in response.getheader("Connection", "").lower():
            raise http.client.IncompleteRead(b"")


def _write(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    content: bytes | None,
) -> None:
    """Send a request. Raises BadAddressError, which shows no header: one is the token."""
    try:
        connection.request(method, target, content, dict(headers))
    except (ValueError, http.client.InvalidURL) as error:
        raise BadAddressError("HTTP has no way to write this path or header") from error


@contextmanager
def _failures_named() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise SilenceError from error
    except (OSError, http.client.HTTPException) as error:
        raise answer_failure(error) from error
