"""A machine with a GPU in MIG mode: its instances are GPUs that jobs are given, by the binding of NVML."""

import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.local import inventory as inventory_module
from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.adapters.local.inventory import LocalInventory, short_hostname
from reservation_core.domain.cards.node_reports import GpuReport
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.integration.cluster_behaviour import SpecMaker, log_of
from tests.nvml.driver import Driver, build, in_place
from tests.waiting import eventually, eventually_sync

NOT_SUPPORTED, GPU_IS_LOST, UNKNOWN = 3, 15, 999
PART = ("h100-mig-1g.10gb", 10 * 2**30)
FIRST, SECOND, WHOLE = "MIG-test-0-0", "MIG-test-0-2", "GPU-test-1"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler builds the library")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Of two GPUs, the first of which is in MIG mode with two instances."""
    with in_place(build(tmp_path, "-DMIG"), monkeypatch) as driver:
        driver.put("mig_mode", 0, 1)
        yield driver


@pytest.fixture
def inventory(driver: Driver) -> Iterator[LocalInventory]:
    inventory = LocalInventory(None, "here")
    yield inventory
    inventory.close()


def listed(inventory: LocalInventory) -> tuple[GpuReport, ...]:
    (node,) = inventory.nodes()
    return node.gpus


def hasty(monkeypatch: pytest.MonkeyPatch) -> LocalInventory:
    monkeypatch.setattr(inventory_module, "ANSWER_S", 3.0)
    return LocalInventory(None, "here")


def test_instances_are_listed_in_place_of_their_gpu(inventory: LocalInventory) -> None:
    (node,) = inventory.nodes()
    found = [(gpu.index, gpu.uuid, gpu.gpu_type, gpu.memory_bytes) for gpu in node.gpus]
    assert found == [(64, FIRST, *PART), (66, SECOND, *PART), (1, WHOLE, "h100", 80 * 2**30)]
    assert node.links is None
    assert inventory.product(SECOND) == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert inventory.is_in_parts()


def test_a_machine_that_leaves_mig_mode_has_whole_gpus(inventory: LocalInventory, driver: Driver) -> None:
    assert len(listed(inventory)) == 3
    driver.put("mig_mode", 0, 0)
    assert [(gpu.index, gpu.uuid) for gpu in listed(inventory)] == [(0, "GPU-test-0"), (1, WHOLE)]
    assert not inventory.is_in_parts()


def test_the_other_gpu_in_mig_mode_has_indices_of_its_own(inventory: LocalInventory, driver: Driver) -> None:
    driver.put("mig_mode", 1, 1)
    driver.put("mig_mode", 0, 0)
    assert [(gpu.index, gpu.uuid) for gpu in listed(inventory)] == [
        (0, "GPU-test-0"), (72, "MIG-test-1-0"), (74, "MIG-test-1-2"),
    ]  # fmt: skip


def test_a_lost_gpu_takes_its_instances_with_it_and_no_other_number_moves(
    inventory: LocalInventory, driver: Driver
) -> None:
    before = listed(inventory)
    driver.put("lost", 0, GPU_IS_LOST)
    after = listed(inventory)
    assert [(gpu.index, gpu.uuid) for gpu in after] == [(gpu.index, gpu.uuid) for gpu in before]
    assert [gpu.condition.value for gpu in after] == ["lost", "lost", "usable"]
    driver.put("lost", 0, 0)
    assert listed(inventory) == before


@pytest.mark.parametrize("error", [UNKNOWN, NOT_SUPPORTED])  # of its handle, and of what is asked of that
def test_an_instance_that_does_not_answer_is_lost_alone(inventory: LocalInventory, driver: Driver, error: int) -> None:
    before = listed(inventory)
    driver.put_instance("instance_lost", 0, error)
    with capture_logs() as logs:
        for _ in range(2):
            assert [(gpu.index, gpu.condition.value) for gpu in listed(inventory)] == [
                (64, "lost"), (66, "usable"), (1, "usable"),
            ]  # fmt: skip
            assert {pod.gpu_indices for pod in inventory.foreign()} == {(66,), (1,), (1, 66)}
        driver.put_instance("instance_lost", 0, 0)
        assert listed(inventory) == before
    assert [(entry["event"], entry["gpu"]) for entry in logs] == [
        ("a GPU does not answer", "64"), ("a GPU answers again", "64"),
    ]  # fmt: skip


@pytest.mark.parametrize("error", [GPU_IS_LOST, UNKNOWN])
def test_what_never_answered_is_left_out_alone(inventory: LocalInventory, driver: Driver, error: int) -> None:
    driver.put_instance("instance_lost", 0, error)
    driver.put("lost", 1, error)
    assert [gpu.index for gpu in listed(inventory)] == [66]
    assert {pod.gpu_indices for pod in inventory.foreign()} == {(66,)}
    driver.put_instance("instance_lost", 0, 0)
    driver.put("lost", 1, 0)
    assert [gpu.index for gpu in listed(inventory)] == [64, 66, 1]


def test_without_any_gpu_that_answers_nothing_is_known(inventory: LocalInventory, driver: Driver) -> None:
    driver.put("lost", 0, UNKNOWN)
    driver.put("lost", 1, UNKNOWN)
    with pytest.raises(ClusterUnavailableError, match="could not list its GPUs"):
        inventory.nodes()


def test_a_gpu_that_hangs_is_lost_alone_and_hangs_nobody(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = hasty(monkeypatch)
    before = listed(inventory)
    driver.hang(1)
    for _ in range(2):
        assert [gpu.condition.value for gpu in listed(inventory)] == ["usable", "usable", "lost"]
        assert {pod.gpu_indices for pod in inventory.foreign()} == {(64,), (66,), (64, 66)}
    inventory.close()  # waits for nothing
    assert driver.get("initialised") == 1
    driver.hang(1, 0)
    eventually_sync(lambda: listed(inventory) == before)
    inventory.close()
    assert driver.get("initialised") == 0


def test_a_driver_that_hangs_hangs_nobody(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = hasty(monkeypatch)
    driver.set("driver_hangs", 1)
    for _ in range(2):
        with pytest.raises(ClusterUnavailableError, match="no answer in"):
            inventory.nodes()
        with pytest.raises(ClusterUnavailableError, match="no answer in"):
            inventory.foreign()
    driver.set("driver_hangs", 0)

    def answers() -> bool:
        try:
            return len(listed(inventory)) == 3
        except ClusterUnavailableError:
            return False

    eventually_sync(answers)
    inventory.close()


def test_foreign_processes_are_told_at_the_instances_that_they_use(inventory: LocalInventory) -> None:
    at = {pod.description.split(" ")[1]: pod.gpu_indices for pod in inventory.foreign()}
    assert at == {"5000117": (64,), "5000317": (66,), "5000017": (1,), "5000018": (1, 64, 66)}


def test_a_gpu_that_does_not_say_what_computes_on_it_is_alone_in_being_left_out(
    inventory: LocalInventory, driver: Driver
) -> None:
    assert len(listed(inventory)) == 3
    driver.put("missing", 1, UNKNOWN)
    with capture_logs() as logs:
        inventory.foreign()
        taken = {pod.gpu_indices: pod.description for pod in inventory.foreign()}
    told = {"event": "a GPU does not list its processes", "gpu": 1, "why": "Unknown Error", "log_level": "warning"}
    assert logs == [told]
    assert "the driver does not list (Unknown Error)" in taken.pop((1,))
    assert set(taken) == {(64,), (66,), (64, 66)}
    driver.put("missing", 1, NOT_SUPPORTED)
    assert {pod.gpu_indices for pod in inventory.foreign()} == {(64,), (66,), (64, 66)}


@pytest.fixture
async def cluster(driver: Driver, tmp_path: Path) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "home", None, SystemClock())
    yield cluster
    for pod in (await cluster.list_pods()).pods:
        await cluster.delete_pod(str(pod.name), timedelta(0))

    async def nothing_left() -> bool:
        return not (await cluster.list_pods()).pods

    await eventually(nothing_left)
    await cluster.close()


@pytest.mark.parametrize(
    ("index", "uuid", "seen"), [(66, SECOND, SECOND), (1, WHOLE, WHOLE), (-1, None, "")], ids=("part", "whole", "none")
)
async def test_programs_see_their_instance(
    cluster: LocalCluster, make_spec: SpecMaker, index: int, uuid: str | None, seen: str
) -> None:
    """By its UUID, and so do those on whole GPUs of the machine: CUDA numbers them otherwise. Without GPUs: none."""
    held = () if uuid is None else (index,)
    spec = replace(
        make_spec(
            "sh",
            "-c",
            'echo "$CUDA_VISIBLE_DEVICES"',
            node=short_hostname(),
            env=(("CUDA_VISIBLE_DEVICES", ",".join(map(str, held))),),
        ),
        gpu_indices=held,
        gpu_uuids=() if uuid is None else (uuid,),
    )
    await cluster.create_pod(spec)
    assert await log_of(cluster, spec, follow=True) == f"{seen}\n"


async def test_without_instances_programs_see_numbers(
    cluster: LocalCluster, driver: Driver, make_spec: SpecMaker
) -> None:
    driver.put("mig_mode", 0, 0)
    command = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"')
    spec = make_spec(*command, node=short_hostname(), env=(("CUDA_VISIBLE_DEVICES", "1"),))
    spec = replace(spec, gpu_indices=(1,), gpu_uuids=(WHOLE,))
    await cluster.create_pod(spec)
    assert await log_of(cluster, spec, follow=True) == "1\n"
