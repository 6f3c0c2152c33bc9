"""`gpu-dev forward`: TCP connections through a job, as if they were direct."""

import hashlib
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus

import pytest

from tests.integration.gpu_dev.sessions.conftest import Person
from tests.sessions.sessions_server import JOB, SessionsServer, problem
from tests.waiting import PATIENCE_S


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Send everything back, and a last word once the other side has sent its end."""
        while data := self.request.recv(65_536):
            self.request.sendall(data)
        self.request.sendall(b"end")


class _EchoServer(socketserver.ThreadingTCPServer):
    request_queue_size = 128
    daemon_threads = True


@pytest.fixture
def echo_port() -> Iterator[int]:
    with _EchoServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def local_port(running: subprocess.Popen[bytes]) -> int:
    assert running.stdout is not None
    line = running.stdout.readline().decode()
    assert line.startswith("127.0.0.1:"), line
    return int(line.split(" ")[0].rpartition(":")[2])


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        yield connection


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while data := connection.recv(65_536):
        parts.append(data)
    return b"".join(parts)


def test_several_ports_and_both_directions_end_apart(ann: Person, echo_port: int) -> None:
    running = ann.begin("forward", JOB, f"0:{echo_port}", f"0:{echo_port}")
    for port in (local_port(running), local_port(running)):
        with connected(port) as connection:
            connection.sendall(b"hello")
            connection.shutdown(socket.SHUT_WR)
            assert read_all(connection) == b"helloend"
    running.send_signal(2)
    assert running.wait(PATIENCE_S) == 130


def test_much_is_the_same(ann: Person, echo_port: int) -> None:
    port = local_port(ann.begin("forward", JOB, f"0:{echo_port}"))
    text = bytes(range(256)) * 4096 * 32
    with connected(port) as connection:
        thread = threading.Thread(target=lambda: (connection.sendall(text), connection.shutdown(socket.SHUT_WR)))
        thread.start()
        got = read_all(connection)
        thread.join()
    assert hashlib.sha256(got).digest() == hashlib.sha256(text + b"end").digest()


def test_many_at_once(ann: Person, echo_port: int) -> None:
    port = local_port(ann.begin("forward", JOB, f"0:{echo_port}"))
    with ExitStack() as opened:
        connections = [opened.enter_context(connected(port)) for _ in range(50)]
        for number, connection in enumerate(connections):
            connection.sendall(b"%d" % number)
        for connection in connections:
            connection.shutdown(socket.SHUT_WR)
        assert [read_all(connection) for connection in connections] == [b"%dend" % number for number in range(50)]


def test_a_closed_port_is_said_and_resets_the_connection(ann: Person, server: SessionsServer) -> None:
    server.refusals[f"/v1/jobs/{JOB}/forward/9"] = problem(HTTPStatus.CONFLICT, "Nothing listens at port 9.")
    running = ann.begin("forward", JOB, "0:9")
    with connected(local_port(running)) as connection, pytest.raises(ConnectionResetError):
        connection.recv(1)
    assert running.stderr is not None
    assert running.stderr.readline() == b"port 9: Nothing listens at port 9.\n"
    assert running.poll() is None


def test_a_connection_that_breaks_is_reset(ann: Person, server: SessionsServer, echo_port: int) -> None:
    port = local_port(ann.begin("forward", JOB, f"0:{echo_port}"))
    with connected(port) as connection:
        connection.sendall(b"hello")
        assert connection.recv(5) == b"hello"
        server.go_down()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_a_local_port_that_is_taken(ann: Person, echo_port: int) -> None:
    done = ann.run("forward", JOB, f"{echo_port}:80")
    assert done.returncode == 2
    refusal = (
        f"error: Port {echo_port} of this machine can't be used: Address already in use. 0:80 takes any free port."
    )
    assert done.stderr.decode().strip() == refusal


@pytest.mark.parametrize("text", ["", "x", "80:", ":80", "80:0", "0", "70000", "1:2:3", "-1:80"])
def test_what_names_no_ports(ann: Person, text: str) -> None:
    assert ann.run("forward", JOB, "--", text).returncode == 2
