"""HTTP by httpx: through proxies, and over any transport of httpx."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

from gpu_dev.server.tls_failures import connection_failure
from gpu_dev.server.transport import (
    CONNECT_S,
    SOCKET_OPTIONS,
    USUAL_SILENCE_S,
    BadAddressError,
    Incoming,
    SilenceError,
    TransportError,
    trusted,
)


def proxied(proxy: str) -> httpx.HTTPTransport:
    """A transport through the proxy with this URL."""
    return httpx.HTTPTransport(proxy=proxy, verify=trusted(), socket_options=SOCKET_OPTIONS)


class HttpxTransport:
    """A transport of httpx as ours."""

    def __init__(self, server: str, transport: httpx.BaseTransport) -> None:
        self._http = httpx.Client(base_url=server, transport=transport, trust_env=False)

    def send(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, silence_s: float | None
    ) -> Incoming:
        timeout = httpx.Timeout(USUAL_SILENCE_S, connect=CONNECT_S, read=silence_s)
        with _failures_named():
            request = self._http.build_request(method, target, content=content, headers=headers, timeout=timeout)
            response = self._http.send(request, stream=True)
        return Incoming(response.status_code, response.reason_phrase, response.headers, _HttpxBody(response))

    def close(self) -> None:
        self._http.close()


class _HttpxBody:
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def read(self) -> bytes:
        with _failures_named():
            return self._response.read()

    def chunks(self) -> Iterator[bytes]:
        with _failures_named():
            yield from self._response.iter_bytes()

    def close(self) -> None:
        self._response.close()


@contextmanager
def _failures_named() -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException as error:
        raise SilenceError from error
    except httpx.ConnectError as error:
        raise connection_failure(error) from error
    except httpx.TransportError as error:
        raise TransportError("the connection broke") from error
    except httpx.InvalidURL as error:
        raise BadAddressError(str(error)) from error
