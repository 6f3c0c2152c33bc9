"""Jobs and connections that the client's tests start from."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from gpu_dev.client import GpuDevClient
from gpu_dev.server.connection import Connection
from gpu_dev.server.exchange import Exchange, read_answer
from gpu_dev.wire.jobs import Job
from reservation_core.contracts import jobs as contract

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def a_job(**changed: Any) -> Job:
    """A queued job, with some fields changed."""
    return read_answer(Job, job_json(**changed))


def job_json(**changed: Any) -> str:
    """A queued job as the server sends it, with some fields changed."""
    fields: dict[str, Any] = {
        "id": "job-7f3k9q2m",
        "name": "train",
        "user": "alice",
        "status": "queued",
        "reason": {"code": "waiting_for_gpus", "detail": "2 h100 are free at 13:00."},
        "gpus": 2,
        "gpu_type": "h100",
        "nodes": 1,
        "duration": timedelta(hours=4),
        "priority": 0,
        "created_at": NOON,
        "queue_position": 3,
        "estimated_start_at": NOON + timedelta(hours=1),
        "started_at": None,
        "ends_at": None,
        "finished_at": None,
        "exit_code": None,
        "allocations": [],
    }
    return contract.Job.model_validate({**fields, **changed}).model_dump_json()


def a_client(handler: Any, pauses: list[float] | None = None) -> GpuDevClient:
    """A client whose requests `handler` answers; its pauses are noted instead of made."""
    noted: list[float] = [] if pauses is None else pauses
    connection = Connection("http://server.test", "secret-token")
    return GpuDevClient(Exchange(connection, transport=httpx.MockTransport(handler), sleep=noted.append))
