"""A machine that has no processes, descriptors or room left lets nobody in; the job goes on."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reservation_core.adapters.local.sessions import entrance
from reservation_core.adapters.local.sessions.entrance import Entrance
from reservation_core.adapters.local.sessions.wire import ENTRANCE, REFUSED, read_frame
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import PodNotReachableError, Terminal
from tests.integration.sessions.pod_worlds import ClusterWorld, ran, sh


def _fail(number: int) -> int:
    raise OSError(number, os.strerror(number))


@contextmanager
def _client(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(folder / ENTRANCE))
        yield client


def test_a_machine_without_processes_refuses_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = Entrance(str(tmp_path), {}, str(tmp_path), 0o077)
    monkeypatch.setattr(os, "fork", lambda: _fail(errno.EAGAIN))
    with _client(tmp_path) as client:
        assert entered.admit()
        kind, text = read_frame(bytearray(client.recv(4096))) or (b"", b"")
        assert (kind, b"starts no more processes" in text) == (REFUSED, True)
    entered.close()


def test_a_pod_has_so_many_programs_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = Entrance(str(tmp_path), {}, str(tmp_path), 0o077)
    monkeypatch.setattr(entrance, "MOST_MINDERS", 0)
    with _client(tmp_path) as client:
        assert entered.admit()
        kind, text = read_frame(bytearray(client.recv(4096))) or (b"", b"")
        assert (kind, b"programs and terminals open already" in text) == (REFUSED, True)
    entered.close()


def test_a_client_that_has_gone_is_refused_without_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = Entrance(str(tmp_path), {}, str(tmp_path), 0o077)
    monkeypatch.setattr(entrance, "MOST_MINDERS", 0)
    with _client(tmp_path):
        pass
    assert entered.admit()
    entered.close()


def test_a_machine_without_descriptors_lets_clients_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = Entrance(str(tmp_path), {}, str(tmp_path), 0o077)
    monkeypatch.setattr(entrance, "accept", lambda _listening: _fail(errno.EMFILE))
    with _client(tmp_path):
        assert not entered.admit()
    entered.close()


async def test_a_server_without_descriptors_leaves_none_open(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await world.start("sleep", "600")
    assert (await ran(world, pod, sh("echo in")))[0] == b"in\n"
    pipe, made = os.pipe, list[tuple[int, int]]()

    def pipe_or_fail() -> tuple[int, int]:
        if len(made) == 2:
            _fail(errno.EMFILE)
        made.append(pipe())
        return made[-1]

    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", pipe_or_fail)
        with pytest.raises(ClusterUnavailableError, match="Too many open files"):
            await ran(world, pod, sh("true"))
    for end in [end for ends in made for end in ends]:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)
    assert (await ran(world, pod, sh("echo in")))[0] == b"in\n"


async def test_a_terminal_that_can_not_be_made_is_refused(world: ClusterWorld, home: Path) -> None:
    pod = await world.start("sleep", "600")
    (home / "pods" / str(pod) / "terminals").rmdir()
    with pytest.raises(PodNotReachableError, match="not started: No such file or directory"):
        await ran(world, pod, sh("true", terminal=Terminal()))
    assert (await ran(world, pod, sh("echo in")))[0] == b"in\n"
