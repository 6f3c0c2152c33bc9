"""WebSockets to the server: the token, TLS, proxies and refusals as those of requests."""

import asyncio
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI, ProxyError
from websockets.http11 import Response
from websockets.typing import Subprotocol

from gpu_dev.errors import ApiError, ClientError, UnreachableError
from gpu_dev.server.exchange import Answer, Exchange, problem_error, target
from gpu_dev.server.tls_failures import connection_failure
from gpu_dev.server.transport import SOCKET_OPTIONS, TransportError, proxy_for_server, trusted

_OPEN_S = 30.0
_PING_EVERY_S = 30.0
_PAUSES_S = (0.2, 0.5, 1.0)
"""Pauses between attempts at a server that does not accept connections, or is too busy."""
_LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_MAX_MESSAGE_BYTES = 4 * 2**20
_QUEUED_MESSAGES = 8


async def open_web_socket(
    exchange: Exchange, path: str, params: Mapping[str, Any] | None = None, subprotocol: str | None = None
) -> ClientConnection:
    """Open a WebSocket for one path of the server.

    Raises ApiError for the server's refusals, UnreachableError, NotLoggedInError without a token.
    """
    tried = 0
    while True:
        try:
            return await exchange.with_token(lambda token: _open(exchange, target(path, params), token, subprotocol))
        except (ApiError, UnreachableError) as error:
            is_brief = isinstance(error, UnreachableError) or error.problem.status in _LATER
            if tried == len(_PAUSES_S) or not is_brief:
                raise
        await asyncio.sleep(_PAUSES_S[tried])
        tried += 1


async def _open(exchange: Exchange, place: str, token: str, subprotocol: str | None) -> ClientConnection:
    server = exchange.server
    is_secure = server.startswith("https:")
    proxy = proxy_for_server(server)
    more: dict[str, Any] = {"ssl": _trusted()} if is_secure else {}
    if proxy is not None and proxy.startswith("https:"):
        more["proxy_ssl"] = _trusted()
    with _failures_named(exchange):
        opened = await connect(
            f"ws{server.removeprefix('http')}{place}",
            additional_headers={"Authorization": f"Bearer {token}"},
            user_agent_header="gpu-dev",
            subprotocols=None if subprotocol is None else [Subprotocol(subprotocol)],
            compression=None,
            proxy=proxy,
            open_timeout=_OPEN_S,
            # Pings keep what lies between from forgetting the connection. An answer may be late: whoever does not read
            # makes the other side wait, and TCP finds out about dead peers.
            ping_interval=_PING_EVERY_S,
            ping_timeout=None,
            close_timeout=5.0,
            max_size=_MAX_MESSAGE_BYTES,
            max_queue=_QUEUED_MESSAGES,
            **more,
        )
    opened_socket = opened.transport.get_extra_info("socket")
    for option in SOCKET_OPTIONS:
        opened_socket.setsockopt(*option)
    return opened


@contextmanager
def _failures_named(exchange: Exchange) -> Iterator[None]:
    try:
        yield
    except InvalidStatus as error:
        raise _refusal(error.response) from error
    except ProxyError as error:
        raise exchange.unreachable(TransportError(f"the proxy refuses: {error}")) from error
    except (InvalidURI, ImportError) as error:
        raise UnreachableError(f"{exchange.server} can't be reached by a WebSocket: {error}.") from error
    except TimeoutError as error:
        raise exchange.unreachable(TransportError("no answer in time")) from error
    except (OSError, EOFError, InvalidHandshake) as error:
        raise exchange.unreachable(connection_failure(error)) from error


def _refusal(response: Response) -> ClientError:
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    return problem_error(Answer(response.status_code, response.reason_phrase, headers, bytes(response.body)))


_contexts: dict[tuple[str | None, str | None], ssl.SSLContext] = {}


def _trusted() -> ssl.SSLContext:
    """The trusted authorities, read once: a forwarded port opens many WebSockets."""
    named = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if named not in _contexts:
        _contexts[named] = trusted()
    return _contexts[named]
