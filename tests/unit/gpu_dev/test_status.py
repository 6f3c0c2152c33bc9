"""The quotas that `status` shows."""

from types import SimpleNamespace
from typing import Any, cast

from gpu_dev.client import GpuDevClient
from gpu_dev.commands.jobs.status import overview_of
from reservation_core.contracts.policy import ExplainRequest, LimitOut
from tests.unit.gpu_dev.examples import a_job

TYPES = ["a100", "b200", "h100", "h200", "l40s", "t4", "v100"]


class Server:
    """A server that knows one quota of all GPUs and one of each type; the user has a job on each of seven types."""

    server = "http://here"

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.policy = self
        self.bookings = SimpleNamespace(calendar=lambda **_: [])

    def me(self) -> Any:
        return SimpleNamespace(name="alice")

    def jobs(self, *_: object, **__: object) -> Any:
        return (a_job(gpu_type=gpu_type) for gpu_type in TYPES)

    def explain(self, request: ExplainRequest) -> Any:
        self.asked.append(request.gpu_type)
        scopes = ["default", *([] if request.gpu_type is None else [f"gpu_type:{request.gpu_type}"])]
        return SimpleNamespace(limits=[LimitOut(rule="max_gpus", value=2, used=1, scope=scope) for scope in scopes])


def test_quotas_of_held_types_are_asked_for_up_to_five_and_shown_once() -> None:
    server = Server()
    seen = overview_of(cast("GpuDevClient", server))
    assert server.asked == [None, *TYPES[:5]]
    assert [quota.scope for quota in seen.quotas] == ["default", *(f"gpu_type:{name}" for name in TYPES[:5])]
