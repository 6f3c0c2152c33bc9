"""Simulations over REST: the past or a trace, as today and changed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.planning import simulate
from tests.integration.api_service.bookings.calendars import add_nodes, execute
from tests.integration.api_service.policy.rules_set import put

pytestmark = pytest.mark.usefixtures("simulated_here")
HOUR = 3600
T0 = datetime(2030, 1, 1, tzinfo=UTC)


def row(at_h: float, gpus: int, ran_h: float, asked_h: float | None = None, **more: Any) -> dict[str, Any]:
    asked = {} if asked_h is None else {"asked_s": asked_h * HOUR}
    submitted_at = (T0 + timedelta(hours=at_h)).isoformat()
    return {"submitted_at": submitted_at, "duration_s": ran_h * HOUR, "gpus": gpus, **asked, **more}


CROWDED = [row(0, 8, 10, 10, user="ann"), row(1, 8, 10, 10, user="ann"), row(2, 1, 1, 1, user="bo")]
EIGHT = {"gpus": 8, "node_size": 8}


async def simulated(client: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await client.post("/v1/simulations", json=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def add_past(runtime: Runtime, user: str, *jobs: tuple[float, int, float]) -> None:
    """Jobs that ended: (hours ago when they were submitted, GPUs, hours that they ran), each after an hour's wait."""
    for number, (ago, gpus, ran) in enumerate(jobs):
        await execute(
            runtime,
            "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, "
            "duration, priority, workload, created_at, changed_at, attempt, started_at, ends_at, finished_at) "
            "SELECT :id, 'job', u.id, 'succeeded', 'completed', '', :gpus, 'h100', 1, make_interval(hours => 20), 0, "
            "'{}', t, t, 1, t + interval '1 hour', t, t + make_interval(secs => 3600 + 3600 * CAST(:ran AS float8)) "
            "FROM users u, (SELECT now() - make_interval(secs => 3600 * CAST(:ago AS float8)) AS t) AS times "
            "WHERE u.name = :user RETURNING id",
            id=f"job-past{user}{number}",
            gpus=gpus,
            ago=ago,
            ran=ran,
            user=user,
        )


async def test_a_trace_waits_less_with_one_node_more(alice: httpx.AsyncClient) -> None:
    found = await simulated(alice, trace=CROWDED, cluster=EIGHT, nodes_added={"gpu": 1})
    today, changed = found["today"], found["changed"]
    assert (found["jobs"], today["gpus"], changed["gpus"]) == (3, 8, 16)
    assert today["longest_s"] == 18 * HOUR
    assert changed["longest_s"] == 8 * HOUR
    assert today["broken"] == changed["broken"] == 0
    assert today["by_size"] == [{"gpus": 1, "wait_s": 18 * HOUR}, {"gpus": 8, "wait_s": 4.5 * HOUR}]
    assert today["by_user"] == [{"user": "bo", "wait_s": 18 * HOUR}, {"user": "ann", "wait_s": 4.5 * HOUR}]
    assert [point["wait_s"] for point in today["curve"]] == [0, 9 * HOUR, 18 * HOUR]
    assert today["curve"][-1]["share"] == 1


async def test_the_order_by_area_lets_the_small_job_go_first(alice: httpx.AsyncClient) -> None:
    # It ends before it asked: then either could start, and the small one came later.
    trace = [row(0, 2, 2, 10), row(1, 2, 10, 10), row(1, 2, 1, 1)]
    found = await simulated(alice, trace=trace, cluster={"gpus": 2, "node_size": 2}, order="arrival")
    assert found["today"]["longest_s"] == 2 * HOUR
    assert found["changed"]["longest_s"] == 11 * HOUR
    rules = {"default": {"order": "arrival"}}
    by_rules = await simulated(alice, trace=trace, cluster={"gpus": 2, "node_size": 2}, policy=rules)
    assert by_rules["changed"] == found["changed"]


async def test_a_quota_of_the_given_policy_holds_jobs_back(alice: httpx.AsyncClient) -> None:
    trace = [row(0, 1, 1, 1, user="ann") for _ in range(4)]
    policy = {"user:ann": {"max_gpus": 1, "max_gpu_hours_per_week": 5}}
    found = await simulated(alice, trace=trace, cluster=EIGHT, policy=policy)
    assert found["today"]["longest_s"] == 0
    assert found["changed"]["longest_s"] == 3 * HOUR


async def test_gpu_hours_of_the_given_policy_hold_jobs_back_until_the_week_is_over(alice: httpx.AsyncClient) -> None:
    trace = [row(0, 4, 1, 1, user="ann"), row(2, 4, 1, 1, user="ann")]
    found = await simulated(alice, trace=trace, cluster=EIGHT, policy={"user:ann": {"max_gpu_hours_per_week": 4}})
    assert found["today"]["longest_s"] == 0
    # 1 January 2030 is a Tuesday.
    assert found["changed"]["longest_s"] == (6 * 24 - 2) * HOUR


async def test_jobs_that_fit_never_are_counted_and_left_out(alice: httpx.AsyncClient) -> None:
    found = await simulated(alice, trace=[row(0, 1, 1), row(0, 9, 1)], cluster=EIGHT)
    assert found["jobs"] == 1
    assert found["left_out"][0].endswith("large enough for them: 1.")
    only = await alice.post("/v1/simulations", json={"trace": [row(0, 9, 1)], "cluster": EIGHT})
    assert only.status_code == 422
    assert only.json()["type"] == "urn:gpu-dev:problem:nothing_to_simulate"


async def test_the_past_of_everybody_is_for_administrators_alone(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    await add_past(runtime, "alice", (30, 4, 2), (29, 4, 2))
    await add_past(runtime, "bob", (30, 4, 5), (24 * 40, 4, 5))
    own = await simulated(alice, history="P30D")
    assert own["jobs"] == 2
    assert [line["user"] for line in own["today"]["by_user"]] == ["alice"]
    assert own["left_out"][0] == "Only your own jobs are simulated, as if nobody else used the GPUs."
    everybody = await simulated(root, history="P30D", nodes_added={"h100": 1})
    assert everybody["jobs"] == 3
    assert {line["user"] for line in everybody["today"]["by_user"]} == {"alice", "bob"}
    assert everybody["changed"]["mean_s"] < everybody["today"]["mean_s"]
    assert (await simulated(root, history="P60D"))["jobs"] == 4


async def test_preemptible_jobs_of_the_past_give_way(root: httpx.AsyncClient, runtime: Runtime) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    await add_past(runtime, "alice", (30, 4, 10))
    await add_past(runtime, "bob", (25, 4, 2))
    ordinary = await simulated(root, history="P30D")
    assert by_user(ordinary) == {"alice": 0, "bob": pytest.approx(5 * HOUR, abs=1)}
    await execute(
        runtime,
        "UPDATE reservations SET preemptible = true, min_runtime = interval '1 hour' WHERE id = 'job-pastalice0' "
        "RETURNING id",
    )
    found = await simulated(root, history="P30D")
    # What it had run is lost: it runs from the start once bob's job is over.
    assert by_user(found) == {"alice": pytest.approx(7 * HOUR, abs=120), "bob": pytest.approx(0, abs=120)}
    assert found["today"]["broken"] == 0


def by_user(found: dict[str, Any]) -> dict[str, float]:
    return {line["user"]: line["wait_s"] for line in found["today"]["by_user"]}


async def test_the_quotas_of_today_hold_in_the_past(root: httpx.AsyncClient, runtime: Runtime) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    await add_past(runtime, "alice", (30, 2, 2), (30, 2, 2))
    await put(root, "user:alice", max_gpus=2)
    found = await simulated(root, history="P30D", policy={})
    assert found["today"]["longest_s"] == pytest.approx(2 * HOUR, abs=1)
    assert found["changed"]["longest_s"] == 0


async def add_booking(runtime: Runtime, user: str, made: float, start: float, end: float) -> None:
    """A booking of four GPUs that is over; times in hours ago."""
    await execute(
        runtime,
        "WITH times AS (SELECT now() - make_interval(secs => 3600 * CAST(:made AS float8)) AS made, "
        "date_trunc('minute', now() - make_interval(secs => 3600 * CAST(:start AS float8))) AS start, "
        "date_trunc('minute', now() - make_interval(secs => 3600 * CAST(:end AS float8))) AS over), stored AS ("
        "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, "
        "priority, workload, created_at, changed_at, finished_at) "
        "SELECT :id, 'booking', u.id, 'ended', 'slot_over', '', 4, 'h100', 1, over - start, 0, '{}', made, over, over "
        "FROM users u, times WHERE u.name = :user RETURNING id, user_id, status) "
        "INSERT INTO bookings (id, starts_at, ends_at, user_id, status) "
        "SELECT id, start, over, user_id, status FROM stored, times RETURNING id",
        id=f"bkg-past{user}{round(start)}",
        user=user,
        made=made,
        start=start,
        end=end,
    )


async def test_past_bookings_have_their_gpus_until_they_are_given_up(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    await add_past(runtime, "alice", (50, 4, 2))
    await add_booking(runtime, "bob", 60, 45, 40)
    found = await simulated(root, history="P30D", nodes_added={"h100": 1})
    assert found["bookings"] == 1
    assert found["today"]["longest_s"] == pytest.approx(10 * HOUR, abs=60)
    assert found["changed"]["longest_s"] == 0
    own = await simulated(alice, history="P30D")
    assert (own["bookings"], own["today"]["longest_s"]) == (0, 0)
    await execute(
        runtime,
        "WITH given_up AS (UPDATE bookings SET status = 'cancelled' WHERE id = 'bkg-pastbob45') "
        "UPDATE reservations SET status = 'cancelled', finished_at = now() - interval '47 hours' "
        "WHERE id = 'bkg-pastbob45' RETURNING id",
    )
    found = await simulated(root, history="P30D")
    assert found["today"]["longest_s"] == pytest.approx(3 * HOUR, abs=60)


async def test_bookings_that_find_no_gpus_are_counted(root: httpx.AsyncClient, runtime: Runtime) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    await add_past(runtime, "alice", (50, 4, 2))
    await add_booking(runtime, "bob", 49, 45, 40)
    await add_booking(runtime, "bob", 24 * 40, 24 * 32, 24 * 31)
    found = await simulated(root, history="P30D", nodes_added={"h100": 1})
    assert found["bookings"] == 1
    assert (found["today"]["refused_bookings"], found["changed"]["refused_bookings"]) == (1, 0)
    assert found["left_out"][0].endswith("when they are made: 1 as today, 0 changed.")


async def test_only_so_many_jobs_are_read_and_the_answer_says_so(
    root: httpx.AsyncClient, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "MOST_JOBS", 2)
    await add_nodes(runtime, node1=("h100", 4))
    await add_past(runtime, "alice", (50, 4, 2), (40, 4, 2), (30, 4, 2))
    found = await simulated(root, history="P30D")
    assert found["jobs"] == 2
    assert found["left_out"][0].startswith("Only the newest 2 jobs are simulated, since ")


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({}, "history"),
        ({"history": "P90D", "trace": CROWDED}, "history"),
        ({"history": "P90D", "cluster": EIGHT}, "cluster"),
        ({"history": "P2Y"}, "history"),
        ({"trace": [row(0, 1, 1), row(0, 0, 1)]}, "trace.1.gpus"),
        ({"trace": [row(0, 1, -1)]}, "trace.0.duration_s"),
        ({"trace": CROWDED, "cluster": {"gpus": 0}}, "cluster.gpus"),
        ({"history": "P90D", "nodes_added": {"h100": 0}}, "nodes_added.h100"),
        ({"history": "P90D", "order": "size"}, "order"),
        ({"history": "P90D", "policy": {"everybody": {}}}, "policy"),
        ({"history": "P90D", "policy": {"default": {"max_gpus": -1}}}, "policy.default.max_gpus"),
    ],
)
async def test_what_can_not_be_simulated_is_named(alice: httpx.AsyncClient, wrong: dict[str, Any], place: str) -> None:
    answer = await alice.post("/v1/simulations", json=wrong)
    assert answer.status_code == 422, answer.text
    assert place in " ".join(rule["detail"] for rule in answer.json()["broken_rules"])


async def test_nodes_of_an_unknown_type_can_not_be_added(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/simulations", json={"trace": CROWDED, "cluster": EIGHT, "nodes_added": {"tpu": 1}})
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:gpu-dev:problem:no_such_type"
