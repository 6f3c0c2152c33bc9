"""A wrong scheme or an untrusted certificate: said once, at the first try, with what to do."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpu_dev.errors import UnreachableError
from gpu_dev.server.connection import Connection
from gpu_dev.server.exchange import Exchange
from tests.programs.webhook_process import new_pair, write_pair

PATIENCE_S = 30.0


@contextmanager
def listening(live: Callable[[socket.socket], None]) -> Iterator[str]:
    """The host and port of a server with one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                live(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def failure(server: str) -> UnreachableError:
    """The error of one request, which is not repeated."""

    def no_pause(seconds: float) -> None:
        raise AssertionError(f"tried again after {seconds} s")

    with pytest.raises(UnreachableError) as caught:
        Exchange(Connection(server, "secret"), sleep=no_pause).send("GET", "/v1/jobs")
    return caught.value


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", b""])
def test_https_to_a_server_without_tls_names_the_address_that_would_do(answer: bytes) -> None:
    def live(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)

    with listening(live) as place:
        error = failure(f"https://{place}")
    assert error.detail == (f"https://{place} does not speak TLS. If that is as it should be, write http://{place}.")
    assert error.next_command is None, "starting another server helps nobody"


def test_http_to_a_server_of_tls_names_the_address_that_would_do() -> None:
    def live(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(bytes.fromhex("15030300020246"))  # the alert of OpenSSL

    with listening(live) as place:
        assert failure(f"http://{place}").detail == f"http://{place} speaks only TLS. Write https://{place}."


def test_an_untrusted_certificate_is_told_with_the_variable_for_authorities(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_pair(new_pair(), tmp_path))

    def live(connection: socket.socket) -> None:
        with suppress(OSError):
            context.wrap_socket(connection, server_side=True)

    with listening(live) as place:
        detail = failure(f"https://{place}").detail
    assert detail.startswith(f"https://{place} has a certificate that is not trusted here (")
    assert detail.endswith("SSL_CERT_FILE.")
