"""Programs and terminals in jobs, over real WebSockets, in real pods of the local cluster."""

import asyncio
import hashlib
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus

from reservation_core.domain.model import PodName
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.runtime.sessions.connections import Connections
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.callers import People
from tests.integration.api_service.served import Served
from tests.integration.api_service.sessions.conftest import Enter, results
from tests.waiting import PATIENCE_S, eventually


def _connections(served: Served) -> Connections:
    services = served.app.state.services
    connections: Connections = services.connections
    return connections


async def _events(runtime: Runtime, job: str) -> list[str]:
    async with runtime.uow() as uow:
        rows = await sql(uow, "SELECT kind || ' ' || actor FROM events WHERE subject = :job ORDER BY id", job=job)
        return [row[0] for row in rows]


async def test_a_program_has_the_jobs_gpus_and_its_exit_code_comes_back(enter: Enter, job: str) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES; echo wrong >&2; exit 7"
    async with enter(job, "exec", command=["sh", "-c", script]) as socket:
        assert socket.subprotocol == "v5.channel.k8s.io"
        assert await results(socket) == (b"1\n", b"wrong\n", 7)
    async with enter("box", "exec", command=["/no/such/thing"]) as socket:
        output, errors, code = await results(socket)
        assert (output, code) == (b"", 127)
        assert b"/no/such/thing" in errors


async def test_input_passes_unchanged_and_ends_when_its_channel_is_closed(enter: Enter, job: str) -> None:
    block = os.urandom(64 * 1024)
    sent, came = hashlib.sha256(), hashlib.sha256()
    async with enter(job, "exec", command=["cat"]) as socket:

        async def send() -> None:
            for _ in range(512):
                sent.update(block)
                await socket.send(b"\0" + block)
            await socket.send(b"\xff\0")

        sending = asyncio.create_task(send())
        async for message in socket:
            assert isinstance(message, bytes)
            if message[0] == 3:
                assert b"Success" in message
                break
            came.update(message[1:])
        await sending
    assert came.digest() == sent.digest()


async def test_a_program_that_is_not_read_waits(enter: Enter, job: str, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"while head -c 1000000 /dev/zero; do echo >>{count}; done"
    async with enter(job, "exec", command=["sh", "-c", script]) as socket:
        await socket.recv()
        socket.transport.pause_reading()
        written = -1
        while written != (written := len(count.read_bytes()) if count.exists() else 0):
            await asyncio.sleep(0.5)
        assert written < 30
        socket.transport.abort()


async def test_a_terminal_has_a_size_and_takes_a_new_one(enter: Enter, job: str) -> None:
    async with enter(job, "exec", command=["sh"], tty="true", columns=91, rows=17, term="vt100") as socket:
        seen = b""
        await socket.send(b"\0echo $TERM; stty size; echo first-is-over\n")
        while seen.count(b"first-is-over") < 2:
            seen += await socket.recv()  # type: ignore[operator]
        assert b"vt100" in seen
        assert b"17 91" in seen
        await socket.send(b'\4{"Width": 60, "Height": 20}')
        await socket.send(b"\0stty size; exit 5\n")
        output, _, code = await results(socket)
        assert b"20 60" in output
        assert code == 5


async def test_a_login_shell_greets_first(enter: Enter, job: str) -> None:
    async with enter(job, "exec", tty="true") as socket:
        first = await socket.recv()
        assert isinstance(first, bytes)
        assert first.startswith(f"\x01Session {job} (box)\r\n".encode())
        assert b"To extend it: gpu-dev extend" in first
        await socket.send(b"\0exit 6\n")
        assert (await results(socket))[2] == 6


async def test_a_terminal_outlives_a_connection_that_breaks_off_and_is_joined_again(enter: Enter, job: str) -> None:
    async with enter(job, "exec", command=["sh"], tty="true") as socket:
        await socket.send(b"\0kept=yes; echo is-$kept\n")
        seen = b""
        while b"is-yes" not in seen:
            seen += await socket.recv()  # type: ignore[operator]
        socket.transport.abort()
    async with enter(job, "exec", attach="true") as first, enter(job, "exec", attach="true") as second:
        await first.send(b"\0echo again-$kept; exit 3\n")
        for socket in (first, second):
            output, _, code = await results(socket)
            assert b"is-yes" in output  # what it showed before
            assert b"again-yes" in output
            assert code == 3
    with pytest.raises(InvalidStatus) as refused:
        async with enter(job, "exec", attach="true"):
            pass
    assert refused.value.response.status_code == 409


def key_of(socket: ClientConnection) -> str:
    """The key of the terminal that was opened or joined."""
    assert socket.response is not None
    return socket.response.headers["Gpu-Dev-Terminal"]


async def test_terminals_are_joined_by_their_person_or_name(
    enter: Enter, job: str, served: Served, people: People, runtime: Runtime
) -> None:
    async with runtime.uow() as uow:
        await sql(
            uow, "INSERT INTO job_shares (reservation_id, user_id, created_at) VALUES (:job, :user, now())",
            job=job, user=people.principals["bob"].user_id,
        )  # fmt: skip

    async def terminals(by: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {people.secrets[by]}"}
        async with httpx.AsyncClient(base_url=served.base_url, headers=headers, timeout=PATIENCE_S) as client:
            return await client.get("/v1/jobs/box/terminals")

    async with (
        enter(job, "exec", command=["sh", "-c", "echo at=alice; cat"], tty="true") as first,
        enter(job, "exec", command=["sh", "-c", "echo at=bob; cat"], by="bob", tty="true") as second,
    ):
        assert [b"at=" in await socket.recv() for socket in (first, second)] == [True, True]  # type: ignore[operator]
        assert (await terminals("root")).status_code == 404
        newest, oldest = (await terminals("bob")).json()["items"]
        assert (newest["user"], oldest["user"]) == ("bob", "alice")
        assert oldest["program"].endswith("cat")
        for by, name, shown in (
            ("alice", None, b"at=alice"), ("bob", None, b"at=bob"), ("alice", newest["name"], b"at=bob"),
        ):  # fmt: skip
            query = {} if name is None else {"terminal": name}
            async with enter(job, "exec", by=by, attach="true", **query) as socket:
                assert shown in await socket.recv()  # type: ignore[operator]
                keys = {b"at=alice": key_of(first), b"at=bob": key_of(second)}
                assert key_of(socket) == keys[shown]
        async with enter(job, "exec", attach="true", terminal=key_of(second)) as socket:
            assert b"at=bob" in await socket.recv()  # type: ignore[operator]
        with pytest.raises(InvalidStatus) as refused:
            async with enter(job, "exec", attach="true", terminal="99999"):
                pass
        assert refused.value.response.status_code == 409
        with pytest.raises(InvalidStatus) as refused:
            async with enter(job, "exec", attach="true", terminal="../x"):
                pass
        assert refused.value.response.status_code == 422


async def test_leaving_in_order_hangs_a_terminals_program_up(enter: Enter, job: str, tmp_path: Path) -> None:
    hung_up = tmp_path / "hung-up"
    script = f"trap 'echo >{hung_up}; exit' HUP; echo ready; while :; do sleep 0.05; done"
    async with enter(job, "exec", command=["sh", "-c", script], tty="true") as socket:
        while b"ready" not in await socket.recv():  # type: ignore[operator]
            pass
        await socket.close()
    await eventually(hung_up.exists)


async def test_only_the_owner_and_those_it_is_shared_with_enter(
    enter: Enter, job: str, runtime: Runtime, people: People, served: Served
) -> None:
    for stranger, status in (("bob", 404), ("root", 404), ("anonymous", 401), ("revoked", 401)):
        for way in ("exec", "forward/80"):
            with pytest.raises(InvalidStatus) as refused:
                async with enter(job, way, by=stranger):
                    pass
            assert refused.value.response.status_code == status, (stranger, way)
    async with runtime.uow() as uow:
        await sql(
            uow,
            "INSERT INTO job_shares (reservation_id, user_id, created_at) VALUES (:job, :user, now())",
            job=job, user=people.principals["bob"].user_id,
        )  # fmt: skip
    with pytest.raises(InvalidStatus):
        async with enter(job, "exec", by="root"):
            pass
    async with enter(job, "exec", by="bob", command=["cat"]) as socket:
        await socket.send(b"\0here\n")
        assert await socket.recv() == b"\x01here\n"
        [connection] = _connections(served).open
        async with runtime.uow() as uow:
            await sql(uow, "DELETE FROM job_shares")
        await _connections(served).refresh()
        assert connection.over.is_set()
        assert "access was withdrawn" in str((await results(socket))[2])
    assert await _events(runtime, job) == ["entered bob"]


@pytest.mark.parametrize(
    ("ends", "statement"),
    [
        ("a token that is revoked", "UPDATE tokens SET revoked_at = now()"),
        ("a token that has expired", "UPDATE tokens SET expires_at = now() WHERE expires_at IS NULL"),
        ("a user who is disabled", "UPDATE users SET disabled_at = now()"),
        ("a job that is over", "UPDATE reservations SET status = 'ending', outcome = 'cancelled'"),
        ("a job that was started again", "UPDATE reservations SET attempt = 2"),
    ],
)
async def test_a_connection_ends_with_the_right_to_it(
    enter: Enter, job: str, runtime: Runtime, served: Served, ends: str, statement: str
) -> None:
    async with enter(job, "exec", command=["sleep", "600"]) as socket:
        await _connections(served).refresh()
        [connection] = _connections(served).open
        async with runtime.uow() as uow:
            await sql(uow, statement)
        await _connections(served).refresh()
        assert connection.over.is_set(), ends
        assert "your access was withdrawn" in str((await results(socket))[2]), ends


async def test_the_pods_end_ends_its_programs(enter: Enter, job: str, runtime: Runtime) -> None:
    async with (
        enter(job, "exec", command=["sleep", "600"]) as piped,
        enter(job, "exec", command=["sleep", "600"], tty="true") as typed,
    ):
        await runtime.cluster.delete_pod(str(PodName(job, 1, 0)), timedelta(0))
        for socket in (piped, typed):
            assert "The job ended" in str((await results(socket))[2])
    with pytest.raises(InvalidStatus) as refused:
        async with enter(job, "exec", command=["true"]):
            pass
    assert refused.value.response.status_code == 409


async def test_a_terminal_is_warned_before_the_end_once(
    enter: Enter, job: str, runtime: Runtime, served: Served
) -> None:
    async def ends_in(minutes: int, *, refreshes: int = 2) -> None:
        now = runtime.clock.now()
        async with runtime.uow() as uow:
            ends = now + timedelta(minutes=minutes, seconds=1)
            await sql(uow, "UPDATE reservations SET ends_at = :ends", ends=ends)
        for _ in range(refreshes):
            await _connections(served).refresh()

    async with enter(job, "exec", command=["sh"], tty="true") as socket:
        [connection] = _connections(served).open
        await ends_in(15)
        connection.entered = replace(connection.entered, opened_at=runtime.clock.now() - timedelta(hours=2))
        await ends_in(31)  # nothing is due yet
        await ends_in(14)  # two moments have passed: one warning
        await ends_in(45)  # extended
        await ends_in(4)
        await socket.send(b"\0exit\n")
        output, _, _ = await results(socket)
    assert [line for line in output.decode().splitlines() if "***" in line] == [
        f"\a*** {job} ends in 14 minutes. To extend it: gpu-dev extend {job} --by 1h ***",
        f"\a*** {job} ends in 4 minutes. To extend it: gpu-dev extend {job} --by 1h ***",
    ]


async def test_who_is_inside_is_listed_and_counted(
    enter: Enter, job: str, served: Served, people: People, runtime: Runtime
) -> None:
    headers = {"Authorization": f"Bearer {people.secrets['alice']}"}
    async with httpx.AsyncClient(base_url=served.base_url, headers=headers, timeout=PATIENCE_S) as client:

        async def inside() -> list[str]:
            answer = (await client.get(f"/v1/jobs/{job}/connections")).raise_for_status().json()
            assert {connection["user"] for connection in answer["items"]} <= {"alice"}
            assert {connection["address"] for connection in answer["items"]} <= {"127.0.0.1"}
            return [connection["way"] for connection in answer["items"]]

        assert await inside() == []
        async with enter(job, "exec", command=["cat"]), enter(job, "exec", command=["sh"], tty="true"):
            assert await inside() == ["exec", "exec"]
            async with enter(job, "exec", attach="true"):
                assert await inside() == ["exec", "exec", "attach"]
        await eventually(lambda: _is_empty(inside))
    assert await _events(runtime, job) == ["entered alice", "entered alice"]


async def _is_empty(inside: "object") -> bool:
    return await inside() == []  # type: ignore[operator]


@pytest.mark.parametrize(("way", "query"), [("exec", {}), ("exec", {"attach": "true"}), ("forward/80", {})])
async def test_a_cluster_that_does_not_answer_is_said(
    enter: Enter, job: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, way: str, query: dict[str, str]
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ClusterUnavailableError("10.0.0.7 does not answer")

    for name in ("run", "attach", "connect"):
        monkeypatch.setattr(runtime.pod_streams, name, fail)
    with pytest.raises(InvalidStatus) as refused:
        async with enter(job, way, **query):
            pass
    assert (refused.value.response.status_code, refused.value.response.headers["Retry-After"]) == (503, "2")
    body = bytes(refused.value.response.body or b"").decode()
    assert "The job can't be entered now" in body
    assert "10.0.0.7" not in body


async def test_what_can_not_be_entered_is_said(enter: Enter, job: str, served: Served, people: People) -> None:
    refusals = {
        ("exec", "", (("rank", 1),)): (404, "has no rank 1"),
        ("exec", "other.protocol", ()): (400, "Offer the subprotocol"),
        ("exec", "v5.channel.k8s.io", (("rows", "many"), ("colour", "red"))): (422, "rows: must be a whole number"),
        ("forward/0", "", ()): (422, "from 1 to 65535"),
        ("forward/9", "", ()): (409, "No process of"),
    }
    for (way, subprotocol, query), (status, words) in refusals.items():
        with pytest.raises(InvalidStatus) as refused:
            async with enter(job, way, subprotocol=subprotocol or "v5.channel.k8s.io", **dict(query)):
                pass
        assert refused.value.response.status_code == status
        assert words in bytes(refused.value.response.body or b"").decode()
    headers = {"Authorization": f"Bearer {people.secrets['alice']}"}
    async with httpx.AsyncClient(base_url=served.base_url, headers=headers, timeout=PATIENCE_S) as client:
        plain = await client.get(f"/v1/jobs/{job}/exec")
        assert (plain.status_code, plain.headers["upgrade"]) == (426, "websocket")
