"""The way to a server without a proxy, over real sockets: kept connections, broken answers, silence."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpu_dev.server.direct_transport import DirectTransport
from gpu_dev.server.transport import BadAddressError, Incoming, SilenceError, TransportError

PATIENCE_S = 30.0
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Two: b\r\n\r\nok"


@contextmanager
def served(*lives: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server whose connections live like this, one after another."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)

        def serve() -> None:
            for live in lives:
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(PATIENCE_S)
                    live(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/below"
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def request_of(connection: socket.socket) -> bytes:
    """The headers of the next request."""
    text = b""
    while not text.endswith(b"\r\n\r\n"):
        text += connection.recv(1)
    return text


def answering(*answers: bytes, seen: list[bytes] | None = None) -> Callable[[socket.socket], None]:
    """A connection that gives one answer after another, and is closed then."""

    def live(connection: socket.socket) -> None:
        for answer in answers:
            text = request_of(connection)
            if seen is not None:
                seen.append(text)
            connection.sendall(answer)

    return live


def get(transport: DirectTransport, silence_s: float | None = PATIENCE_S) -> Incoming:
    return transport.send("GET", "/v1/jobs?limit=1", {"Authorization": "Bearer x"}, None, silence_s)


def read_whole(transport: DirectTransport, *, in_parts: bool) -> bytes:
    incoming = get(transport)
    try:
        return b"".join(incoming.body.chunks()) if in_parts else incoming.body.read()
    finally:
        incoming.body.close()


def test_a_connection_is_used_again_and_the_servers_path_is_kept() -> None:
    seen: list[bytes] = []
    with served(answering(WHOLE, WHOLE, seen=seen)) as server:
        transport = DirectTransport(server, None)
        first = get(transport)
        assert (first.status, first.phrase, first.headers["x-two"]) == (200, "OK", "b")
        assert first.body.read() == b"ok"
        first.body.close()
        assert read_whole(transport, in_parts=True) == b"ok"
        transport.close()
    assert all(text.startswith(b"GET /below/v1/jobs?limit=1 HTTP/1.1\r\n") for text in seen)
    assert b"Authorization: Bearer x\r\n" in seen[0]


def test_a_kept_connection_that_the_server_has_ended_is_not_used() -> None:
    ended = threading.Event()

    def live(connection: socket.socket) -> None:
        answering(WHOLE)(connection)
        connection.shutdown(socket.SHUT_WR)
        ended.set()
        assert connection.recv(1) == b""

    with served(live, answering(WHOLE)) as server:
        transport = DirectTransport(server, None)
        assert read_whole(transport, in_parts=False) == b"ok"
        assert ended.wait(PATIENCE_S)
        assert read_whole(transport, in_parts=False) == b"ok"
        transport.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok",
        b"HTTP/1.1 200 OK\r\nX-Two: b\r\n",
        b"what?\r\n\r\n",
    ],
)
@pytest.mark.parametrize("in_parts", [False, True])
def test_half_an_answer_is_a_broken_connection(answer: bytes, in_parts: bool) -> None:
    with served(answering(answer)) as server:
        transport = DirectTransport(server, None)
        with pytest.raises(TransportError, match="the connection broke"):
            read_whole(transport, in_parts=in_parts)
        transport.close()


def test_parts_come_as_they_are_sent_and_silence_is_told_apart() -> None:
    told = threading.Event()

    def live(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        assert told.wait(PATIENCE_S)
        connection.sendall(b"3\r\ntwo\r\n")
        assert connection.recv(1) == b""  # the client has given up

    with served(live) as server:
        transport = DirectTransport(server, None)
        incoming = get(transport, silence_s=2)
        parts = incoming.body.chunks()
        assert next(parts) == b"one"
        told.set()
        assert next(parts) == b"two"
        with pytest.raises(SilenceError, match="no answer in time"):
            next(parts)
        incoming.body.close()
        transport.close()


def test_a_refusal_before_the_body_was_read_is_an_answer() -> None:
    def live(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass

    with served(live) as server:
        transport = DirectTransport(server, None)
        answer = transport.send("POST", "/v1/jobs", {}, b"x" * 10_000_000, PATIENCE_S)
        assert answer.status == 413
        assert answer.body.read() == b""
        answer.body.close()
        transport.close()


def test_no_server_is_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(TransportError, match="no connection"):
        get(DirectTransport(f"http://127.0.0.1:{port}", None))


@pytest.mark.parametrize(
    ("server", "address", "host"),
    [
        ("http://[2001:db8::2:8080]", ("2001:db8::2:8080", 80), "[2001:db8::2:8080]"),
        ("http://[::1]", ("::1", 80), "[::1]"),
        ("https://[fd00::abcd]", ("fd00::abcd", 443), "[fd00::abcd]"),
        ("http://[::1]:8080", ("::1", 8080), "[::1]:8080"),
        ("http://gpu.test", ("gpu.test", 80), "gpu.test"),
        ("https://gpu.test:80", ("gpu.test", 80), "gpu.test:80"),
    ],
)
def test_the_host_of_the_address_is_called_and_no_other(
    monkeypatch: pytest.MonkeyPatch, server: str, address: tuple[str, int], host: str
) -> None:
    called: list[tuple[str, int]] = []

    def connected(to: tuple[bytes, int], _timeout_s: float) -> socket.socket:
        called.append((to[0].decode(), to[1]))
        ours, theirs = socket.socketpair()
        servers.append(theirs)
        theirs.sendall(WHOLE)
        return ours

    servers: list[socket.socket] = []
    monkeypatch.setattr(socket, "create_connection", connected)
    monkeypatch.setattr("gpu_dev.server.direct_transport.SOCKET_OPTIONS", [])
    transport = DirectTransport(server, Unencrypted() if server.startswith("https:") else None)  # type: ignore[arg-type]
    get(transport).body.close()
    [theirs] = servers
    assert f"\r\nHost: {host}\r\n".encode() in request_of(theirs)
    assert called == [address]
    theirs.close()
    transport.close()


class Unencrypted:
    """Stands for TLS where only the address matters."""

    def wrap_socket(self, plain: socket.socket, *, server_hostname: str) -> socket.socket:
        assert "[" not in server_hostname
        return plain


def test_other_letters_and_spaces_of_the_servers_path_are_quoted_once() -> None:
    seen: list[bytes] = []
    with served(answering(WHOLE, seen=seen)) as server:
        transport = DirectTransport(f"{server}/gpü a%20b", None)
        assert read_whole(transport, in_parts=False) == b"ok"
        transport.close()
    assert seen[0].startswith(b"GET /below/gp%C3%BC%20a%20b/v1/jobs?limit=1 HTTP/1.1\r\n")


@pytest.mark.parametrize("value", ["a\nb", "€"])
def test_a_header_that_cannot_be_written_is_refused_without_its_value(value: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        transport = DirectTransport(f"http://127.0.0.1:{listening.getsockname()[1]}", None)
        with pytest.raises(BadAddressError) as refused:
            transport.send("GET", "/", {"Authorization": value}, None, PATIENCE_S)
    assert value not in str(refused.value)


HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"


@pytest.mark.parametrize("before", [HINTS, HINTS + HINTS, b"HTTP/1.1 100 Continue\r\n\r\n" + HINTS])
def test_informational_answers_are_passed_over(before: bytes) -> None:
    with served(answering(before + WHOLE, WHOLE)) as server:
        transport = DirectTransport(server, None)
        first = get(transport)
        assert (first.status, first.headers.get("link"), first.body.read()) == (200, None, b"ok")
        first.body.close()
        assert read_whole(transport, in_parts=True) == b"ok"
        transport.close()


def test_a_connection_that_switched_its_protocol_is_not_kept() -> None:
    def live(connection: socket.socket) -> None:
        answering(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\n\r\n")(connection)
        assert connection.recv(1) == b""

    with served(live, answering(WHOLE)) as server:
        transport = DirectTransport(server, None)
        first = get(transport)
        assert (first.status, first.body.read()) == (101, b"")
        first.body.close()
        assert read_whole(transport, in_parts=False) == b"ok"
        transport.close()


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Two: b", b"ok"),
        (b"HTTP/1.1 200 OK\r\nConnection: close, TE", b"ok"),
        (b"HTTP/1.1 200 OK\r\nConnection: TE, Close", b""),
        (b"HTTP/1.0 200 OK", b""),
    ],
)
@pytest.mark.parametrize("in_parts", [False, True])
def test_an_answer_may_end_with_its_connection(headers: bytes, body: bytes, in_parts: bool) -> None:
    answer = headers + b"\r\n\r\n" + body
    with served(answering(answer), answering(answer)) as server:
        transport = DirectTransport(server, None)
        assert read_whole(transport, in_parts=in_parts) == body
        assert read_whole(transport, in_parts=in_parts) == body  # over a new connection
        transport.close()


@pytest.mark.parametrize("server", ["http://host:99999", f"http://{'ü' * 70}.test", "http://a b.test"])
def test_an_address_that_cannot_be_is_told_apart(server: str) -> None:
    with pytest.raises(BadAddressError):
        get(DirectTransport(server, None))
