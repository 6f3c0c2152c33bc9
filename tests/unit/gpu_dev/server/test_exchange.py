"""Broken connections, refusals and strange answers."""

import importlib.metadata
import json
from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest

from gpu_dev.client import GpuDevClient
from gpu_dev.errors import (
    ApiError,
    ExitCode,
    NotLoggedInError,
    OlderServerError,
    UnexpectedAnswerError,
    UnreachableError,
    UsageError,
)
from gpu_dev.main import described
from gpu_dev.server.connection import NO_SOURCE, Connection
from gpu_dev.server.exchange import BRIEF_S, PATIENT_S, Exchange
from gpu_dev.wire.jobs import JobSubmit, Workload
from gpu_dev.wire.policy import ExplainRequest
from reservation_core.domain.statuses import JobStatus
from tests.unit.gpu_dev.examples import a_client, job_json

OWN = importlib.metadata.version("gpu-dev-server")
REQUEST = JobSubmit(gpus=1, duration=timedelta(minutes=1), workload=Workload())


def answer(status: int = 202, **changed: object) -> httpx.Response:
    return httpx.Response(status, text=job_json(**changed), headers={"content-type": "application/json"})


@pytest.mark.parametrize(
    ("server", "source", "advised"),
    [
        ("http://127.0.0.1:1", NO_SOURCE, "gpu-dev up"),
        ("http://127.0.0.1:1", "/srv/gpus/.gpu-dev/admin-token", "gpu-dev up"),
        ("http://127.0.0.1:1", "/home/ada/.config/gpu-dev/login.json", None),
        ("https://gpus.example.org", "/home/ada/.config/gpu-dev/login.json", None),
    ],
)
def test_only_an_administrator_is_advised_to_start_a_server(server: str, source: str, advised: str | None) -> None:
    error = Exchange(Connection(server, "secret", source)).unreachable(OSError("no connection"))
    assert error.next_command == advised
    asked = "Ask its administrator." if "example" in server else "Ask the administrator of this machine to start it."
    assert (asked in error.detail) == (advised is None)


def test_every_try_of_a_submit_has_the_same_key_and_another_submit_another() -> None:
    seen: list[tuple[str, bytes]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append((request.headers["idempotency-key"], request.content))
        if len(seen) < 3:
            raise httpx.ReadError("the connection broke after the request was sent")
        return answer()

    client = a_client(handler)
    client.submit(REQUEST)
    client.submit(REQUEST)
    assert len(seen) == 4
    assert len({seen[0], seen[1], seen[2]}) == 1
    assert seen[3][0] != seen[0][0]


def test_a_server_that_was_never_there_is_given_up_soon() -> None:
    pauses: list[float] = []

    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(UnreachableError, match="does not answer") as caught:
        a_client(handler, pauses).job("job-7f3k9q2m")
    assert pauses == list(BRIEF_S)
    assert caught.value.exit_code is ExitCode.UNAVAILABLE


def test_a_server_that_was_there_is_waited_for() -> None:
    pauses: list[float] = []
    answers = iter([answer(200), httpx.ConnectError("refused"), httpx.Response(503, text="starting"), answer(200)])

    def handler(request: httpx.Request) -> httpx.Response:
        one = next(answers)
        if isinstance(one, Exception):
            raise one
        return one

    client = a_client(handler, pauses)
    client.job("job-7f3k9q2m")
    client.job("job-7f3k9q2m")
    assert pauses == list(PATIENT_S[:2])


def test_who_comes_too_often_waits_as_long_as_the_server_says() -> None:
    pauses: list[float] = []
    waits = iter(["3", "0", "86400", "Wed, 21 Oct 2026 07:28:00 GMT", None])

    def handler(request: httpx.Request) -> httpx.Response:
        try:
            said = next(waits)
        except StopIteration:
            return answer(200)
        return httpx.Response(429, headers={} if said is None else {"Retry-After": said})

    a_client(handler, pauses).job("job-7f3k9q2m")
    assert pauses == [3.0, PATIENT_S[1], 60.0, *PATIENT_S[3:5]]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ExitCode.REFUSED),
        (401, ExitCode.AUTH),
        (403, ExitCode.AUTH),
        (404, ExitCode.NOT_FOUND),
        (409, ExitCode.REFUSED),
        (412, ExitCode.REFUSED),
        (422, ExitCode.REFUSED),
        (500, ExitCode.UNAVAILABLE),
    ],
)
def test_a_refusal_is_told_at_once_with_the_problem(status: int, code: ExitCode) -> None:
    calls = 0

    def handler(request: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        return httpx.Response(
            status,
            json={
                "type": "urn:x",
                "title": "No",
                "status": status,
                "detail": "Do this.",
                "from_the_future": 1,
                "broken_rules": [{"code": "too_many", "detail": "At most 8."}],
            },
            headers={"content-type": "application/problem+json"},
        )

    with pytest.raises(ApiError) as caught:
        a_client(handler).submit(REQUEST)
    assert calls == 1
    assert caught.value.exit_code is code
    assert caught.value.problem.broken_rules is not None
    assert caught.value.problem.broken_rules[0].code == "too_many"


@pytest.mark.parametrize(
    ("content_type", "words"),
    [("text/html", "it is a page, so a proxy or another program answers"), ("application/problem+json", "not here")],
)
def test_a_refusal_without_a_problem_is_still_one(content_type: str, words: str) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(404, text="<h1>not here</h1>", headers={"content-type": content_type})

    with pytest.raises(ApiError, match=words) as caught:
        a_client(handler).job("job-7f3k9q2m")
    assert caught.value.exit_code is ExitCode.NOT_FOUND
    assert next(described(caught.value.problem)).count("Not Found") == 1


def test_a_refused_token_is_named_by_its_source_and_login_comes_after_it() -> None:
    problem = {"type": "urn:gpu-dev:problem:x", "title": "No", "status": 401, "detail": "Use another token."}
    headers = {"content-type": "application/problem+json"}
    refusing = httpx.MockTransport(lambda _: httpx.Response(401, json=problem, headers=headers))
    for source, command in (("/a/file", "gpu-dev login"), ("GPU_DEV_TOKEN", "unset GPU_DEV_TOKEN; gpu-dev login")):
        connection = Connection("http://gpus", "wrong", source)
        with pytest.raises(ApiError) as caught, GpuDevClient(Exchange(connection, transport=refusing)) as client:
            client.me()
        assert f"The refused token is from {source}." in next(described(caught.value.problem))
        assert caught.value.next_command == command


def test_a_server_address_with_a_path_is_told_without_paths_of_rest() -> None:
    problem = {"type": "urn:gpu-dev:problem:no_such_route", "title": "No", "status": 404, "detail": "Look at /docs."}
    headers = {"content-type": "application/problem+json"}
    lost = httpx.MockTransport(lambda _: httpx.Response(404, json=problem, headers=headers))
    with pytest.raises(UnexpectedAnswerError, match="http://gpus/more has a path"):
        GpuDevClient(Exchange(Connection("http://gpus/more", "x"), transport=lost)).me()
    with pytest.raises(OlderServerError, match="it does not know this request"):
        GpuDevClient(Exchange(Connection("http://gpus", "x"), transport=lost)).me()


def test_fields_of_a_newer_server_are_passed_over() -> None:
    newer = json.loads(job_json()) | {"mood": "good", "reason": {"code": "submitted", "detail": "", "x": 1}}
    assert a_client(lambda request: httpx.Response(200, json=newer)).job("job-7f3k9q2m").id == "job-7f3k9q2m"


@pytest.mark.parametrize("text", ["<html>", "{}", "[]", '{"id": 7}', ""])
def test_something_else_at_that_address_is_told_apart(text: str) -> None:
    with pytest.raises(UnexpectedAnswerError, match="same version"):
        a_client(lambda request: httpx.Response(200, text=text)).job("job-7f3k9q2m")


def test_a_server_that_does_not_answer_with_a_verdict_is_called_older() -> None:
    """As servers answered before verdicts, which did not say their version either."""
    before = {"allowed": True, "kind": "job", "broken_rules": [], "possible_from": None, "limits": [], "exceptions": []}
    asked = ExplainRequest(gpus=1, duration=timedelta(minutes=1))
    with pytest.raises(OlderServerError) as caught:
        a_client(lambda request: httpx.Response(200, json=before)).policy.explain(asked)
    assert str(caught.value) == (
        f"This server is older than this command line ({OWN}): its answer has no reasons, starts_at, verdict. "
        "Use a command line of the server's version, or ask an administrator to upgrade the server."
    )
    assert caught.value.exit_code is ExitCode.UNAVAILABLE


def test_a_server_that_does_not_know_a_field_is_called_older_by_its_version() -> None:
    problem = {
        "type": "urn:gpu-dev:problem:invalid_request",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": "The request breaks the rules listed in `broken_rules`; correct these fields and send it again.",
        "broken_rules": [{"code": "extra_forbidden", "detail": "workload: is not a field that this takes"}],
    }
    headers = {"content-type": "application/problem+json", "gpu-dev-version": "0.1.0"}
    with pytest.raises(OlderServerError) as caught:
        a_client(lambda request: httpx.Response(422, json=problem, headers=headers)).submit(REQUEST)
    assert str(caught.value).startswith(
        f"This server (0.1.0) is older than this command line ({OWN}): it does not know workload. "
    )


def test_a_redirect_does_not_take_the_token_elsewhere() -> None:
    hosts = []

    def handler(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return httpx.Response(307, headers={"location": "http://evil.test/v1/jobs"})

    with pytest.raises(ApiError):
        a_client(handler).submit(REQUEST)
    assert set(hosts) == {"server.test"}


@pytest.mark.parametrize("value", ["a\nb", "€"])
def test_a_header_that_http_cannot_carry_is_a_usage_error(value: str) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise AssertionError("sent")

    with pytest.raises(UsageError, match="Idempotency-Key") as refused:
        a_client(handler).submit(REQUEST, idempotency_key=value)
    assert value not in refused.value.detail


@pytest.mark.parametrize(
    "call", [lambda exchange: exchange.send("GET", "/"), lambda exchange: exchange.stream("/").__enter__()]
)
def test_an_address_that_cannot_be_asked_is_said_for_streams_too(call: Callable[[Exchange], object]) -> None:
    exchange = Exchange(Connection("http://127.0.0.1:99999", "secret-token"))
    with pytest.raises(UnreachableError, match="No request can be sent to the address"):
        call(exchange)


def test_without_a_token_nothing_is_sent() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise AssertionError("sent")

    exchange = Exchange(Connection("http://server.test", None), transport=httpx.MockTransport(handler))
    with pytest.raises(NotLoggedInError) as caught:
        GpuDevClient(exchange).job("job-7f3k9q2m")
    assert caught.value.next_command == "gpu-dev login http://server.test"


def test_lists_are_read_page_by_page_as_they_are_used() -> None:
    cursors = []

    def handler(request: httpx.Request) -> httpx.Response:
        cursor = request.url.params.get("cursor")
        cursors.append(cursor)
        assert request.url.params.get_list("status") == ["queued", "running"]
        following = {None: "b", "b": None}[cursor]
        return httpx.Response(200, json={"items": [json.loads(job_json())] * 2, "next_cursor": following})

    jobs = a_client(handler).jobs({JobStatus.RUNNING, JobStatus.QUEUED})
    assert cursors == []
    assert len(list(jobs)) == 4
    assert cursors == [None, "b"]


def renewing(handler: Callable[[httpx.Request], httpx.Response], renewed: list[str]) -> Exchange:
    def renew() -> str:
        renewed.append(f"token-{len(renewed) + 2}")
        return renewed[-1]

    connection = Connection("http://there", "token-1")
    return Exchange(connection, transport=httpx.MockTransport(handler), sleep=lambda _: None, renew=renew)


def test_a_token_that_is_no_good_any_more_is_renewed_once_for_a_request() -> None:
    renewed: list[str] = []
    seen: list[tuple[str, str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append((request.headers["authorization"], request.headers["idempotency-key"]))
        return answer() if seen[-1][0] == "Bearer token-2" else httpx.Response(401)

    with GpuDevClient(renewing(handler, renewed)) as client:
        client.submit(REQUEST)
        client.submit(REQUEST)
    assert renewed == ["token-2"]
    assert [token for token, _ in seen] == ["Bearer token-1", "Bearer token-2", "Bearer token-2"]
    # The same request, so the same key.
    assert seen[0][1] == seen[1][1]


def test_a_server_that_refuses_new_tokens_too_is_believed() -> None:
    renewed: list[str] = []
    with (
        GpuDevClient(renewing(lambda _: httpx.Response(401), renewed)) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.submit(REQUEST)
    assert caught.value.exit_code is ExitCode.AUTH
    assert renewed == ["token-2"]


def test_streams_are_renewed_as_well() -> None:
    renewed: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200 if request.headers["authorization"] == "Bearer token-2" else 401, text="line\n")

    exchange = renewing(handler, renewed)
    with exchange.stream("/v1/jobs/job-7f3k9q2m/logs") as response:
        assert response.read() == b"line\n"
    assert renewed == ["token-2"]
    refusing = renewing(lambda _: httpx.Response(401), [])
    with pytest.raises(ApiError), refusing.stream("/v1/jobs/job-7f3k9q2m/logs"):
        pass
    refusing.close()
    exchange.close()


def test_anonymous_requests_carry_no_token_and_renew_none() -> None:
    renewed: list[str] = []
    exchange = renewing(lambda request: httpx.Response(401 if "authorization" not in request.headers else 500), renewed)
    with pytest.raises(ApiError) as caught:
        exchange.send("POST", "/v1/login", anonymous=True)
    assert (caught.value.problem.status, renewed) == (401, [])
    exchange.close()
