"""What the API says of jobs that were removed because they were old, and of the lists that they were in."""

from datetime import timedelta

import httpx
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from reservation_core.domain.history.retention import HistoryKind, RetentionRules
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.history.retention import RetentionWalk, remove_old_history
from tests.integration.api_service.callers import submitted

RULES = RetentionRules(None, timedelta(days=400), timedelta(days=400), None, None, None)


async def test_removed_jobs_are_unknown_and_lists_go_on(
    alice: httpx.AsyncClient, runtime: Runtime, database_url: str
) -> None:
    jobs = [(await submitted(alice))["id"] for _ in range(6)]
    for job_id in jobs[:4]:
        assert (await alice.post(f"/v1/jobs/{job_id}/cancel")).is_success
    first = (await alice.get("/v1/jobs", params={"limit": 2})).json()
    assert [job["id"] for job in first["items"]] == jobs[:3:-1]
    second = (await alice.get("/v1/jobs", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE reservations SET finished_at = finished_at - interval '401 days' WHERE id = ANY(:ids)"),
            {"ids": jobs[:4]},
        )
        # Reports of usage have them in their sums.
        await connection.execute(text("DELETE FROM usage_pending"))
    await engine.dispose()

    report = await remove_old_history(runtime.uow, runtime.cluster, RULES, RetentionWalk())
    assert report.removed == {HistoryKind.JOBS: 4}
    for path in ("", "/events", "/logs"):
        assert (await alice.get(f"/v1/jobs/{jobs[0]}{path}")).status_code == 404
    assert (await alice.post(f"/v1/jobs/{jobs[0]}/cancel")).status_code == 404
    rest = await alice.get("/v1/jobs", params={"limit": 2, "cursor": second["next_cursor"]})
    assert (rest.status_code, rest.json()["items"]) == (200, [])
    again = (await alice.get("/v1/jobs")).json()["items"]
    assert [job["id"] for job in again] == jobs[:3:-1]
    metrics: httpx.Response = await alice.get("/metrics")
    assert 'gpu_dev_retention_removed_total{kind="jobs"} 4.0' in metrics.text
