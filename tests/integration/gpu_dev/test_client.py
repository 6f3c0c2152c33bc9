"""The typed client against the real API where connections break after the server has acted."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import httpx
import pytest
from typer.testing import CliRunner

from gpu_dev.client import GpuDevClient
from gpu_dev.commands.people import tokens
from gpu_dev.errors import ApiError, ExitCode
from gpu_dev.server.connection import Connection
from gpu_dev.server.exchange import Exchange
from gpu_dev.wire.jobs import JobSubmit, Workload
from tests.integration.gpu_dev.conftest import System

SESSION = JobSubmit(gpus=1, duration=timedelta(minutes=10), workload=Workload())


class LosesAnswers(httpx.BaseTransport):
    """Passes every request on, and loses the first answers to POSTs."""

    def __init__(self, lost: int) -> None:
        self.inner = httpx.HTTPTransport()
        self.lost = lost

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self.inner.handle_request(request)
        if request.method == "POST" and self.lost:
            self.lost -= 1
            response.close()
            raise httpx.ReadError("the answer was lost")
        return response

    def close(self) -> None:
        self.inner.close()


@contextmanager
def client_of(system: System, who: str = "alice", lost: int = 0) -> Iterator[GpuDevClient]:
    exchange = Exchange(
        Connection(system.url, system.tokens[who]), transport=LosesAnswers(lost), sleep=lambda seconds: None
    )
    with GpuDevClient(exchange) as client:
        yield client


def test_a_submit_whose_answers_are_lost_submits_once(system: System) -> None:
    with client_of(system, lost=2) as client:
        job = client.submit(SESSION)
        assert [one.id for one in client.jobs()] == [job.id]


def test_an_extension_whose_answer_is_lost_extends_once(system: System) -> None:
    with client_of(system) as client:
        job = client.submit(SESSION)
    with client_of(system, lost=1) as client:
        assert client.extend(job.id, timedelta(minutes=5)).duration == timedelta(minutes=15)
        assert client.job(job.id).duration == timedelta(minutes=15)


def test_a_change_can_be_tied_to_what_was_seen(system: System) -> None:
    with client_of(system) as client:
        job, etag = client.job_with_etag(client.submit(SESSION).id)
        client.extend(job.id, timedelta(minutes=5))
        with pytest.raises(ApiError) as caught:
            client.cancel(job.id, if_match=etag)
        assert (caught.value.problem.status, caught.value.exit_code) == (412, ExitCode.REFUSED)


def test_a_token_whose_answer_is_lost_has_no_secret(system: System) -> None:
    from gpu_dev.wire.people import TokenCreate

    with client_of(system, lost=1) as client:
        assert client.create_token(TokenCreate(name="x")).token is None
        assert [one.name for one in client.tokens() if one.name] == ["x"]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_token_is_renewed_also_when_the_answer_is_lost(
    system: System, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    token = system.cli("tokens", "create", "--name", "laptop").stdout.strip()
    connection = Connection(system.url, token)
    exchange = Exchange(connection, transport=LosesAnswers(lost), sleep=lambda seconds: None)
    monkeypatch.setattr("gpu_dev.commands.people.tokens.connection_of", lambda ctx: connection)
    monkeypatch.setattr("gpu_dev.commands.people.tokens.client_for", lambda ctx: GpuDevClient(exchange))
    done = CliRunner().invoke(tokens.app, ["renew"])
    assert done.exit_code == 0, done.output
    new = done.stdout.strip()
    assert system.cli("users", "me", "-o", "name", GPU_DEV_TOKEN=new).stdout == "alice\n"
    assert system.cli("users", "me", GPU_DEV_TOKEN=token).returncode != 0


def test_all_tokens_but_the_one_in_use_are_revoked(system: System) -> None:
    mine, other = (system.cli("tokens", "create", "--name", name).stdout.strip() for name in ("mine", "other"))
    assert system.cli("tokens", "revoke", GPU_DEV_TOKEN=mine).returncode == 2
    done = system.cli("tokens", "revoke", "--all", "--yes", GPU_DEV_TOKEN=mine)
    assert (done.returncode, "of alice's tokens revoked" in done.stdout) == (0, True)
    assert system.cli("users", "me", GPU_DEV_TOKEN=mine).returncode == 0
    assert system.cli("users", "me", GPU_DEV_TOKEN=other).returncode != 0


def test_a_token_with_a_budget_is_made_listed_and_held_to_it(system: System) -> None:
    made = system.cli("tokens", "create", "--gpu-hours", "2.5", "--until", "in 30d", "--name", "laptop")
    token = made.stdout.strip()
    refused = system.cli("submit", "--gpus", "3", "--for", "1h", "--", "true", GPU_DEV_TOKEN=token)
    assert (refused.returncode, "has 2.5 of 2.5 left until" in refused.stderr) == (4, True), refused.stderr
    assert "token_budget" in system.cli("explain", "--gpus", "3", "--for", "1h", GPU_DEV_TOKEN=token).stdout
    assert system.cli("submit", "--gpus", "2", "--for", "1h", "--", "true", GPU_DEV_TOKEN=token).returncode == 0
    assert "2 of 2.5 GPU-hours until" in system.cli("tokens", "list").stdout
    for wrong in (("--until", "in 30d"), ("--gpu-hours", "0")):
        assert system.cli("tokens", "create", *wrong).returncode == 2
