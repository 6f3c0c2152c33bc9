"""Statuses of pods whose init containers fail or don't start."""

from typing import Any

from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import ReasonCode
from tests.unit.reservation_core.adapters.kubernetes.pods.test_pod_statuses import (
    RUNNING,
    code,
    pod,
    read,
    terminated,
    waiting,
)


def before(state: dict[str, Any]) -> dict[str, Any]:
    return {"initContainerStatuses": [{"name": "tools", "state": terminated(0)}, {"name": "files", "state": state}]}


def test_an_init_container_that_can_not_start_is_the_cause_of_waiting() -> None:
    initializing = waiting("PodInitializing")
    for reason, expected in (("ErrImagePull", ReasonCode.IMAGE_PULL_FAILED), ("PodInitializing", None)):
        held = pod("Pending", initializing, **before(waiting(reason, "manifest unknown")))
        assert code(held) is expected
        assert read(held).hopeless_here is (expected is not None)
    assert code(pod("Pending", initializing, **before(RUNNING))) is None


def test_an_image_of_the_server_is_not_taken_for_the_users() -> None:
    reason = read(
        pod("Pending", waiting("PodInitializing"), **before(waiting("ErrImagePull", "manifest unknown")))
    ).reason
    assert reason is not None
    assert reason.detail == (
        "An image of this server, which prepares the pod for the job, can't be started: manifest unknown. "
        "Tell an administrator."
    )


def test_a_failed_init_container_ends_the_pod_with_its_last_words() -> None:
    failed = pod("Failed", waiting("PodInitializing"), **before(terminated(1, message="No space left on device\n")))
    status = read(failed)
    assert (status.phase, status.started_at, status.exit_code) == (PodPhase.FINISHED, None, None)
    assert code(failed) is ReasonCode.START_FAILED
    assert status.reason is not None
    assert "init container ended with exit code 1: No space left on device." in status.reason.detail
