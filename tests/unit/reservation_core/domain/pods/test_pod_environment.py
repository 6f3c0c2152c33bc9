"""What the pods of a reservation are told."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from reservation_core.domain.model import AllocatedGpu, ArrayElement, PodName, PodWorkload, Reason, Reservation
from reservation_core.domain.pods.pod_environment import master_port, pod_environment, pod_specs
from reservation_core.domain.statuses import JobStatus, ReasonCode, ReservationKind

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
END = NOW + timedelta(hours=4)
GRACE = timedelta(seconds=10)
BELT = timedelta(minutes=2)


def reservation(**env: str) -> Reservation:
    return Reservation(
        id="job-7f3k9q",
        seq=1,
        kind=ReservationKind.JOB,
        user_id=1,
        user="ada",
        name=None,
        status=JobStatus.STARTING,
        reason=Reason(ReasonCode.ALLOCATED, ""),
        gpus=2,
        gpu_type="h100",
        nodes=1,
        duration=timedelta(hours=4),
        priority=0,
        workload=PodWorkload(("python", "train.py"), env=tuple(env.items()), working_dir="/data"),
        created_at=NOW,
        version=1,
        attempt=3,
        range_end=END,
    )


def gpu(rank: int, node: str, index: int) -> AllocatedGpu:
    return AllocatedGpu(index, node, index, f"GPU-{node}-{index}", rank, NOW, END, held=True)


def test_one_node_gets_its_cards_and_nothing_about_gangs() -> None:
    env = dict(pod_environment(reservation(LR="0.1"), "n1", (2, 5), 0, ["n1"], 20_000))
    assert env == {
        "LR": "0.1",
        "CUDA_VISIBLE_DEVICES": "2,5",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GPU_DEV_JOB_ID": "job-7f3k9q",
        "GPU_DEV_ATTEMPT": "3",
        "GPU_DEV_NODE": "n1",
    }


def test_an_element_is_told_its_index_and_the_size_of_its_array() -> None:
    element = replace(reservation(), element=ArrayElement("job-7f3k9q", 4, 10))
    env = dict(pod_environment(element, "n1", (2,), 0, ["n1"], 20_000))
    assert (env["GPU_DEV_ARRAY_INDEX"], env["GPU_DEV_ARRAY_SIZE"]) == ("4", "10")


def test_ours_win_over_the_users() -> None:
    env = pod_environment(reservation(CUDA_VISIBLE_DEVICES="0,1,2,3"), "n1", (2,), 0, ["n1"], 20_000)
    assert [value for name, value in env if name == "CUDA_VISIBLE_DEVICES"] == ["2"]


def test_a_gang_learns_where_to_meet() -> None:
    specs = pod_specs(
        reservation(), (gpu(1, "b", 4), gpu(0, "a", 3), gpu(1, "b", 0), gpu(0, "a", 2)), NOW, GRACE, BELT, "10.0.0.7"
    )
    assert [(spec.name, spec.node, spec.gpu_indices) for spec in specs] == [
        (PodName("job-7f3k9q", 3, 0), "a", (2, 3)),
        (PodName("job-7f3k9q", 3, 1), "b", (0, 4)),
    ]
    first, second = (dict(spec.env) for spec in specs)
    assert (first["NNODES"], first["NODE_RANK"], first["MASTER_ADDR"]) == ("2", "0", "10.0.0.7")
    assert second["NODE_RANK"] == "1"
    assert first["MASTER_PORT"] == second["MASTER_PORT"] == str(master_port("job-7f3k9q"))
    assert second["CUDA_VISIBLE_DEVICES"] == "0,4"
    assert specs[1].gpu_uuids == ("GPU-b-0", "GPU-b-4")


def test_the_belt_comes_after_the_range() -> None:
    (spec,) = pod_specs(reservation(), (gpu(0, "a", 0),), NOW, GRACE, BELT)
    assert spec.deadline == END + BELT
    assert (spec.grace, spec.user, spec.workload) == (GRACE, "ada", reservation().workload)


def test_the_meeting_port_is_a_function_of_the_id() -> None:
    ports = {master_port(f"job-{number}") for number in range(1000)}
    assert all(20_000 <= port <= 29_999 for port in ports)
    assert len(ports) > 900
    assert master_port("job-7f3k9q") == 27_906
