"""What strangers can't do to any of the HTTP servers, by raw sockets: the same limits hold for all of them."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.integration.reservation_core.runtime.http.http_servers import (
    NAMES,
    HttpServer,
    everything,
    http_server,
    status,
)
from tests.waiting import eventually_sync

MIB = 2**20
MOST = 60
SETTINGS = {
    "GPU_DEV_HTTP__HEAD_S": "1",
    "GPU_DEV_HTTP__BODY_S": "120",
    "GPU_DEV_HTTP__BODY_GRACE_S": "0.5",
    "GPU_DEV_HTTP__READER_S": "1",
    "GPU_DEV_HTTP__MAX_CONNECTIONS": str(MOST),
}
TOO_LATE = (ConnectionError, ssl.SSLEOFError, TimeoutError)
"""What a sender sees of a server that has answered and closed meanwhile."""


@pytest.fixture(scope="module", params=NAMES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, module_database_url: str
) -> Iterator[HttpServer]:
    name = str(request.param)
    with http_server(name, tmp_path_factory.mktemp(name), module_database_url, **SETTINGS) as running:
        yield running


def answered(server: HttpServer, *pieces: bytes) -> bytes:
    """What comes back for these bytes, the connection's end included."""
    with server.connect() as connection:
        with suppress(*TOO_LATE):
            for piece in pieces:
                connection.sendall(piece)
        return everything(connection)


def get(server: HttpServer, *fields: bytes, query: bytes = b"") -> bytes:
    head = b"GET %b%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" % (server.alive.encode(), query)
    return head + b"".join(b"%b\r\n" % field for field in fields) + b"\r\n"


# --- Heads.


def test_a_long_url_is_414(server: HttpServer) -> None:
    short = 8 * 1024 - len(server.alive) - 1
    assert status(answered(server, get(server, query=b"?" + b"x" * short))) == 200
    assert status(answered(server, get(server, query=b"?" + b"x" * (short + 1)))) == 414
    assert status(answered(server, get(server, query=b"?" + b"x" * 15_000))) == 414
    assert status(answered(server, get(server, query=b"?" + b"x" * 100_000))) == 414


def test_a_large_head_is_431_however_it_is_cut(server: HttpServer) -> None:
    fits = get(server, b"X-A: " + b"a" * 7_000, b"X-B: " + b"b" * 8_000)
    large = get(server, b"X-A: " + b"a" * 9_000, b"X-B: " + b"b" * 8_000)
    assert status(answered(server, fits)) == 200
    assert status(answered(server, *(fits[at : at + 500] for at in range(0, len(fits), 500)))) == 200
    assert status(answered(server, large)) == 431
    assert status(answered(server, *(large[at : at + 500] for at in range(0, len(large), 500)))) == 431
    assert status(answered(server, get(server, b"X-A: " + b"a" * 100_000))) == 431


def test_many_fields_are_431(server: HttpServer) -> None:
    fields = [b"X-%d: y" % number for number in range(99)]
    assert status(answered(server, get(server, *fields[:98]))) == 200
    assert status(answered(server, get(server, *fields))) == 431


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_endless_heads_take_no_memory(server: HttpServer, begun: bytes) -> None:
    """400 MiB took the API from 142 to 595 MiB; what is refused is read no further."""
    assert server.get().status_code == 200
    before = server.memory()
    piece = b"x" * MIB
    with server.connect() as connection:
        with suppress(*TOO_LATE):
            connection.sendall(begun)
            for _ in range(400):
                connection.sendall(piece)
        assert server.get().status_code == 200
        assert status(everything(connection)) in (414, 431)
    assert server.memory() - before < 24 * MIB


def test_a_slow_head_is_408_and_silence_is_closed(server: HttpServer) -> None:
    assert status(answered(server, b"GET /heal")) == 408
    assert status(answered(server, b"GET / HTTP/1.1\r\nHost: x\r\n")) == 408
    assert status(answered(server, b"\r\n\r\n")) == 408
    assert answered(server) == b""


def test_the_second_head_of_a_connection_has_as_long(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\nGET /heal" % server.alive.encode())
        received = everything(connection)
    assert received.count(b"HTTP/1.1 200 ") == 1
    assert received.count(b"HTTP/1.1 408 ") == 1


def test_what_is_no_http_is_400(server: HttpServer) -> None:
    assert status(answered(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) == 400
    assert status(answered(server, b"\x00\x01\x02\r\n\r\n")) == 400


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]
)
def test_a_body_behind_an_upgrade_is_refused_and_not_lost(server: HttpServer, framing: bytes) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    received = answered(server, b"POST %b HTTP/1.1\r\nHost: x\r\n%b%b" % (server.alive.encode(), upgrade, framing))
    assert status(received) == 400
    assert b"without the header Upgrade" in received
    for nothing in (b"", b"Content-Length: 0\r\n"):
        assert (
            status(
                answered(server, b"GET %b HTTP/1.1\r\nHost: x\r\n%b%b\r\n" % (server.alive.encode(), upgrade, nothing))
            )
            == 200
        )


def test_refusals_say_what_to_do_and_end_the_connection(server: HttpServer) -> None:
    received = answered(server, get(server, b"X-A: " + b"a" * 20_000))
    assert b"Content-Type: application/problem+json\r\n" in received
    assert b"Connection: close\r\n" in received
    assert b"more than 16384 bytes. Send fewer or shorter header fields." in received


def test_a_refused_head_behind_a_good_one_leaves_that_ones_answer_whole(server: HttpServer) -> None:
    good = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % server.alive.encode()
    received = answered(server, good + get(server, b"X-A: " + b"a" * 100_000))
    assert status(received) == 200


def test_thousands_of_pipelined_requests_are_not_kept(server: HttpServer) -> None:
    good = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % server.alive.encode()
    assert 1 <= answered(server, good * 5_000).count(b"HTTP/1.1 200 ") < 5_000


# --- Bodies.


def test_a_body_that_comes_too_slowly_is_408(server: HttpServer) -> None:
    received = answered(server, server.posting + b"Content-Length: 30000\r\n\r\n{")
    # The health port reads no bodies: it has answered, and does not wait for the rest.
    assert status(received) == (200 if server.name == "health" else 408)


def test_endless_trailers_and_chunk_extensions_are_not_read(server: HttpServer) -> None:
    for framing in (b"1\r\n{\r\n0\r\nX-A: ", b"1;a="):
        before = server.memory()
        with server.connect() as connection:
            with suppress(*TOO_LATE):
                connection.sendall(server.posting + b"Transfer-Encoding: chunked\r\n\r\n" + framing)
                for _ in range(100):
                    connection.sendall(b"x" * MIB)
            everything(connection)
        assert server.memory() - before < 24 * MIB
        assert server.get().status_code == 200


def test_trailers_are_no_headers(server: HttpServer) -> None:
    """Behind a proxy a trailer could else speak as the proxy does."""
    chunked = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\n{}\r\n0\r\nContent-Encoding: gzip\r\n\r\n"
    assert status(answered(server, server.posting + chunked)) not in (None, 415)


# --- Responses.


def test_a_client_that_reads_nothing_is_disconnected(server: HttpServer) -> None:
    if server.name == "health":
        pytest.skip("its answers are shorter than any buffer")
    before = server.refused("reader_too_slow")
    with ExitStack() as open_ones:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(10)
        plain.connect(server.address)
        tls = server.tls
        silent = plain if tls is None else tls.wrap_socket(plain, server_hostname="127.0.0.1")
        open_ones.enter_context(silent)
        silent.setblocking(False)

        def disconnected() -> bool:
            with suppress(*TOO_LATE, BlockingIOError, ssl.SSLWantWriteError):
                silent.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
            return server.refused("reader_too_slow") > before

        eventually_sync(disconnected)


# --- Connections.


def test_silent_connections_keep_nobody_out(server: HttpServer) -> None:
    """1,100 of them once stopped API and planner alike. Here the oldest silent ones make room."""
    before = server.descriptors()
    with ExitStack() as silent:
        for number in range(1_100):
            connection = silent.enter_context(server.tcp())
            with suppress(*TOO_LATE):
                connection.sendall((b"", b"GET / HTTP/1.1\r\nX-A")[number % 2])
        eventually_sync(lambda: _answers(server))
        eventually_sync(lambda: server.descriptors() <= before + MOST + 8)
    eventually_sync(lambda: _answers(server))
    if server.name != "health":
        assert server.refused("displaced") + server.refused("server_full") > 0


def test_idle_connections_make_room_for_new_ones(server: HttpServer) -> None:
    with ExitStack() as idle:
        for _ in range(MOST):
            eventually_sync(lambda: _is_answered(idle.enter_context(server.connect()), server))
        eventually_sync(lambda: _answers(server))


def test_where_all_connections_work_another_one_is_503(server: HttpServer) -> None:
    if server.name == "health":
        pytest.skip("it reads no bodies, so nothing is ever under way for long")
    begun = server.posting + b"Content-Length: 32000\r\n\r\n{" + b" " * 31_000  # which may take half a minute

    def one_more() -> bytes | None:
        """What a further connection gets at once; nothing while there is room."""
        try:
            connection = working.enter_context(server.connect())
            connection.sendall(begun)
            connection.settimeout(0.05)
            return connection.recv(2**16) or b"closed"
        except TimeoutError:
            return None
        except (ConnectionError, ssl.SSLError):
            return b"closed"

    with ExitStack() as working:
        received = eventually_sync(one_more)
        if server.tls is None:
            assert status(received) == 503
            assert b"Retry-After: 1\r\n" in received
    eventually_sync(lambda: _answers(server))
    assert server.refused("server_full") > 0


def _is_answered(connection: socket.socket, server: HttpServer) -> bool:
    with suppress(*TOO_LATE):
        connection.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % server.alive.encode())
        return status(connection.recv(2**16)) == 200
    return False


def _answers(server: HttpServer) -> bool:
    try:
        with server.connect() as connection:
            connection.sendall(get(server))
            return status(everything(connection)) == 200
    except TOO_LATE:
        return False
