"""The extender over real HTTP: answers, what is not taken, how it is, its certificate, and its end."""

import json
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.integration.gpu_admission.conftest import Served, served
from tests.integration.gpu_admission.counting_extender import CountingExtender, node, pod
from tests.programs.webhook_process import new_pair, trusting, write_pair
from tests.waiting import PATIENCE_S, eventually_sync

JSON = {"Content-Type": "application/json"}


def by_name(*names: str, gpus: int = 2) -> dict[str, Any]:
    return {"Pod": pod(gpus=gpus), "Nodes": None, "NodeNames": list(names)}


# --- Answers.


def test_filter_by_name(client: httpx.Client) -> None:
    answer = client.post("/scheduler/predicates", json=by_name("n1", "n2", "n3", "n4"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "Nodes": None,
        "NodeNames": ["n1", "n3"],
        "FailedNodes": {"n2": "n2 has 1 of 2"},
        "FailedAndUnresolvableNodes": {"n4": "n4 is not known"},
        "Error": "",
    }


def test_filter_by_objects_gives_back_the_same_objects(client: httpx.Client) -> None:
    given = {"Pod": pod(gpus=2), "Nodes": {"metadata": {}, "items": [node("n1"), node("n2"), node("n3")]}}
    found = client.post("/scheduler/predicates", json=given).json()
    assert found["Nodes"] == {"metadata": {}, "items": [node("n1"), node("n3")]}
    assert found["NodeNames"] is None


def test_priorities(client: httpx.Client) -> None:
    answer = client.post("/scheduler/priorities", json=by_name("n1", "n3"))
    assert answer.json() == [{"Host": "n1", "Score": 2}, {"Host": "n3", "Score": 6}]
    objects = {"Pod": pod(), "Nodes": {"items": [node("n3")]}}
    assert client.post("/scheduler/priorities", json=objects).json() == [{"Host": "n3", "Score": 6}]


def test_binding_and_its_refusal(client: httpx.Client, extender: CountingExtender) -> None:
    asked = {"PodName": "train-0", "PodNamespace": "team-a", "PodUID": "uid-of-train-0", "Node": "n2"}
    assert client.post("/scheduler/bind", json=asked).json() == {"Error": ""}
    assert extender.free["n2"] == 0
    refused = client.post("/scheduler/bind", json=asked)
    assert refused.status_code == 200  # the text reaches the pod's events only so
    assert refused.json() == {"Error": "n2 has no 1 cards any more; the pod is tried again"}


def test_volcano_asks(client: httpx.Client) -> None:
    def asked(name: str) -> httpx.Response:
        return client.post("/scheduler/vpredicates", json={"task": {"Pod": pod(gpus=2)}, "node": {"Name": name}})

    assert (asked("n1").status_code, asked("n1").json()) == (200, {})
    told = "n2 has 1 of 2"
    assert asked("n2").json() == {"errorMessage": told, "status": told, "code": 2}
    question = {"task": {"Pod": pod()}, "nodes": [{"Name": "n1"}, {"Name": "n3"}]}
    assert client.post("/scheduler/vprioritize", json=question).json() == {"nodeScore": {"n1": 20.0, "n3": 60.0}}


def test_volcano_tells(client: httpx.Client, extender: CountingExtender) -> None:
    def tell(what: str, name: str, status: int) -> httpx.Response:
        task = {"Pod": pod(gpus=2), "NodeName": name, "Status": status}
        return client.post(f"/scheduler/{what}", json={"task": task})

    before = extender.free["n1"]
    assert tell("vallocate", "n1", 4).json() == {}  # it waits there for others to leave, and is asked about anew
    assert extender.free["n1"] == before
    assert (tell("vallocate", "n1", 2).status_code, tell("vallocate", "n2", 2).json()) == (
        200,
        {"errorMessage": "n2 has 1 of 2"},
    )
    assert extender.free["n1"] == before - 2
    assert tell("vdeallocate", "n1", 64).json() == {}  # evicted: it is there still
    assert extender.free["n1"] == before - 2
    assert tell("vdeallocate", "n1", 1).json() == {}
    assert extender.free["n1"] == before
    extender.synced = False
    assert tell("vallocate", "n1", 2).status_code == 503
    assert tell("vdeallocate", "n1", 1).status_code == 200
    assert 'calls_total{call="volcano_allocate",outcome="refused"} 1.0' in client.get("/metrics").text


def test_the_option_for_exact_shapes_counts(extender: CountingExtender) -> None:
    with served(extender, volcano_shape="v1.8") as running:
        question = {"task": {"Pod": pod(gpus=2)}, "node": {"Name": "n2"}}
        found = running.client().post("/scheduler/vpredicates", json=question).json()
        assert found == {"status": [{"Code": 2, "Reason": "n2 has 1 of 2"}]}


def test_questions_leave_nothing_behind(client: httpx.Client, extender: CountingExtender) -> None:
    before = dict(extender.free)
    for _ in range(3):
        client.post("/scheduler/predicates", json=by_name("n1"))
        client.post("/scheduler/priorities", json=by_name("n1"))
    assert extender.free == before


def test_nothing_is_answered_before_everything_was_seen(client: httpx.Client, extender: CountingExtender) -> None:
    extender.synced = False
    told = "nodes and pods are being read; the pod is tried again"
    found = client.post("/scheduler/predicates", json=by_name("n1"))
    assert (found.status_code, found.json()["Error"], found.json()["NodeNames"]) == (200, told, None)
    binding = {"PodName": "p", "PodNamespace": "team-a", "PodUID": "u", "Node": "n1"}
    assert client.post("/scheduler/bind", json=binding).json() == {"Error": told}
    for path, question in (
        ("/scheduler/priorities", by_name("n1")),
        ("/scheduler/vpredicates", {"task": {"Pod": pod()}, "node": {"Name": "n1"}}),
        ("/scheduler/vprioritize", {"task": {"Pod": pod()}, "nodes": []}),
    ):
        answer = client.post(path, json=question)
        assert answer.status_code == 503, path
        assert told in answer.text
    silent = client.get("/ready")  # whatever the reason is, such as another replica that leads
    assert (silent.status_code, silent.json()) == (503, {"status": "not ready", "why": told})
    assert client.get("/health").status_code == 200


def test_what_goes_wrong_inside_is_not_told(client: httpx.Client, extender: CountingExtender) -> None:
    extender.fails = True
    answer = client.post("/scheduler/predicates", json=by_name("n1"))
    assert answer.status_code == 500
    assert answer.json()["Error"] == "something went wrong in gpu-admission; its log says what"
    assert "secret" not in answer.text
    extender.fails = False
    assert client.post("/scheduler/predicates", json=by_name("n1")).status_code == 200


# --- Refused bodies.


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/scheduler/predicates", b"{", {"Error": "the body is not JSON in UTF-8"}),
        ("/scheduler/priorities", b"{}", {"Error": "send the candidates as Nodes, or as NodeNames"}),
        ("/scheduler/bind", b"{}", {"Error": "PodNamespace must be a text of 1 to 63 characters"}),
        ("/scheduler/vpredicates", b"[]", {"errorMessage": "the body must be an object with task and node"}),
        ("/scheduler/vprioritize", b"{}", {"errorMessage": "the body must be an object with task and nodes"}),
    ],
)
def test_malformed_questions(client: httpx.Client, path: str, body: bytes, told: dict[str, str]) -> None:
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code == 400
    assert told.items() <= answer.json().items()


def test_only_these_paths_and_methods(client: httpx.Client) -> None:
    assert client.get("/scheduler/predicates").status_code == 405
    assert "POST" in client.get("/scheduler/predicates").json()["Error"]
    missing = client.post("/scheduler/preempt", json={})
    assert (missing.status_code, "vpredicates" in missing.json()["Error"]) == (404, True)


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}, {**JSON, "Content-Encoding": "gzip"}])
def test_only_plain_json_is_read(client: httpx.Client, headers: dict[str, str]) -> None:
    assert client.post("/scheduler/predicates", content=b"{}", headers=headers).status_code == 415


def test_bodies_are_bounded(extender: CountingExtender) -> None:
    limit = 256 * 1024
    with served(extender, max_body_bytes=limit, max_bytes_in_flight=limit) as running:
        large = b" " * (limit + 1)
        client = running.client()
        with capture_logs() as lines:
            answer = client.post("/scheduler/predicates", content=large, headers=JSON)
        assert answer.status_code == 413
        assert "nodeCacheCapable: true" in answer.json()["Error"]
        # kube-scheduler shows the status alone, so whoever looks for the reason finds it in the log.
        (refused,) = [line for line in lines if line["event"] == "question_refused"]
        assert (refused["log_level"], refused["call"], refused["status"]) == ("warning", "filter", 413)
        assert refused["why"] == answer.json()["Error"]
        pieces = (b" " * 2**16 for _ in range(6))  # its length isn't announced
        assert running.client().post("/scheduler/predicates", content=pieces, headers=JSON).status_code == 413
        fits = json.dumps(by_name("n1")).encode()
        fits += b" " * (limit - len(fits))
        assert running.client().post("/scheduler/predicates", content=fits, headers=JSON).status_code == 200


def large(size: int = 280 * 1024) -> dict[str, Any]:
    """A question that needs room."""
    return {"Pod": pod(gpus=2), "Nodes": {"items": [node("n1", size)]}, "NodeNames": None}


def test_many_large_bodies_take_turns(extender: CountingExtender) -> None:
    """There is room for one at a time, and all are answered."""
    room = 400 * 1024
    with served(extender, max_body_bytes=room, max_bytes_in_flight=room, body_s=120) as running:
        found: list[int] = []

        def ask() -> None:
            with httpx.Client(base_url=running.url, trust_env=False, timeout=100) as client:
                found.append(client.post("/scheduler/predicates", json=large()).status_code)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert found == [200] * 8


def held_room(running: Served, size: int) -> socket.socket:
    """Somebody who announces a body, and sends no more than its beginning."""
    slow = socket.create_connection(("127.0.0.1", running.port))
    head = "POST /scheduler/predicates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    slow.sendall(f"{head}Content-Length: {size}\r\n\r\n{{".encode())
    return slow


def test_who_holds_the_room_keeps_no_small_questions_out(extender: CountingExtender) -> None:
    room = 400 * 1024
    rules = {"max_body_bytes": room, "max_bytes_in_flight": room, "body_s": 600}
    with served(extender, **rules) as running, held_room(running, room):
        assert running.client().post("/scheduler/predicates", json=by_name("n1")).status_code == 200


def test_who_holds_the_room_and_sends_nothing_keeps_large_ones_out_for_a_time(extender: CountingExtender) -> None:
    room = 400 * 1024
    with served(extender, max_body_bytes=room, max_bytes_in_flight=room, body_s=3) as running:
        with held_room(running, room) as slow:
            slow.settimeout(60)
            assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
            assert b"" in iter(lambda: slow.recv(2**16), None)  # and the connection is closed
        assert running.client().post("/scheduler/predicates", json=large()).status_code == 200


@pytest.mark.parametrize(
    ("begun", "answer"),
    [
        (b"", b""),
        (b"POST /scheduler/pred", b"HTTP/1.1 408 "),
        (b"POST /scheduler/bind HTTP/1.1\r\nHost: x\r\n", b"HTTP/1.1 408 "),
    ],
)
def test_a_whole_request_has_body_s_the_head_included(extender: CountingExtender, begun: bytes, answer: bytes) -> None:
    with served(extender, body_s=0.5) as running, socket.create_connection(("127.0.0.1", running.port)) as slow:
        slow.settimeout(60)
        slow.sendall(begun)
        assert b"".join(iter(lambda: slow.recv(2**16), b"")).startswith(answer)


def test_connections_are_kept(running: Served) -> None:
    with socket.create_connection(("127.0.0.1", running.port)) as connection:
        connection.settimeout(60)
        body = json.dumps(by_name("n1")).encode()
        head = "POST /scheduler/predicates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        for _ in range(3):
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            received = b""
            while not received.endswith(b"}"):
                received += connection.recv(2**16)
            assert received.startswith(b"HTTP/1.1 200 ")


def test_fifty_megabytes_of_nodes_are_answered(extender: CountingExtender) -> None:
    extender.free = {f"n{number}": number % 9 for number in range(5000)}
    items = [node(name, 10 * 1024) for name in extender.free]
    body = json.dumps({"Pod": pod(gpus=2), "Nodes": {"items": items}, "NodeNames": None}).encode()
    assert len(body) > 50_000_000
    with served(extender, body_s=60) as running:
        answer = running.client().post("/scheduler/predicates", content=body, headers=JSON)
        found = answer.json()
        kept = {predicate["metadata"]["name"] for predicate in found["Nodes"]["items"]}
        assert kept == {name for name, free in extender.free.items() if free >= 2}
        assert len(kept) + len(found["FailedNodes"]) == 5000


# --- How it is.


def test_version_health_readiness_and_metrics(client: httpx.Client, extender: CountingExtender) -> None:
    assert client.get("/version").json()["version"].startswith("v")
    assert client.get("/health").json() == {"service": "gpu-admission", "status": "healthy", "problems": []}
    assert (client.get("/ready").status_code, client.get("/ready").json()) == (200, {"status": "ready"})
    extender.is_ready = False
    assert (client.get("/ready").status_code, client.get("/ready").json()) == (503, {"status": "standing by"})
    extender.trouble = ["the ConfigMap kube-system/gpuquota can't be read"]
    found = client.get("/health")
    assert (found.status_code, found.json()["status"], found.json()["problems"]) == (200, "degraded", extender.trouble)
    client.post("/scheduler/predicates", json=by_name("n2"))
    text = client.get("/metrics").text
    assert 'gpu_dev_admission_calls_total{call="filter",outcome="refused"} 1.0' in text
    assert "gpu_dev_admission_problems 1.0" in text
    assert "gpu_dev_admission_free_cards 13.0" in text
    assert "gpu_dev_admission_questions_total 1.0" in text


def test_profiles(running: Served) -> None:
    client = running.debug_client()
    assert "/debug/pprof/profile" in client.get("/debug/pprof/").text
    tasks = client.get("/debug/pprof/goroutine").text
    assert "threads" in tasks
    assert "gpu_admission/serve.py" in tasks
    assert "resident " in client.get("/debug/pprof/heap").text
    stacks = client.get("/debug/pprof/profile?seconds=0.3").text.splitlines()
    assert stacks
    assert all(line.rpartition(" ")[2].isdigit() for line in stacks)
    for seconds in ("0", "-1", "nan", "121", "long"):
        assert client.get(f"/debug/pprof/profile?seconds={seconds}").status_code == 400
    assert running.client().get("/debug/pprof/").status_code == 404  # only on its own address


def test_one_profile_at_a_time(running: Served) -> None:
    found: list[httpx.Response] = []
    making = threading.Thread(
        target=lambda: found.append(running.debug_client().get("/debug/pprof/profile?seconds=120"))
    )
    making.start()
    client = running.debug_client()
    eventually_sync(lambda: "sample_stacks" in client.get("/debug/pprof/goroutine").text)
    assert client.get("/debug/pprof/profile?seconds=0.01").status_code == 409
    running.stop()  # and it ends early with the process
    making.join(PATIENCE_S)
    assert found[0].status_code == 200


# --- TLS, and the end.


def test_a_new_certificate_is_taken_into_use(extender: CountingExtender, pair_folder: Path) -> None:
    first, second = new_pair(), new_pair()
    certificate, key = write_pair(first, pair_folder)
    with served(extender, tls_cert=certificate, tls_key=key, certificate_look_s=0.05) as running:
        client = running.client(verify=trusting(first))
        assert client.post("/scheduler/predicates", json=by_name("n1")).status_code == 200
        write_pair(second, pair_folder)
        eventually_sync(lambda: shaken(running, trusting(second)))
        assert not shaken(running, trusting(first))
        assert client.get("/health").status_code == 200  # on the connection from before
        with httpx.Client(trust_env=False, timeout=60) as plain, pytest.raises(httpx.TransportError):
            plain.get(f"http://127.0.0.1:{running.port}/health")


def shaken(running: Served, context: ssl.SSLContext) -> bool:
    try:
        with httpx.Client(base_url=running.url, verify=context, trust_env=False, timeout=60) as client:
            return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def test_it_answers_on_for_a_while_when_asked_to_end(extender: CountingExtender) -> None:
    with served(extender, drain_s=6) as running:
        client = running.client()
        assert "connection" not in client.get("/ready").headers
        running.stop()
        eventually_sync(lambda: client.get("/ready").status_code == 503, 6)
        assert client.get("/ready").json() == {"status": "draining"}
        answer = client.post("/scheduler/predicates", json=by_name("n1"))
        assert answer.json()["NodeNames"] == ["n1"]
        assert answer.headers["connection"] == "close"
        running.ended.result(PATIENCE_S)
