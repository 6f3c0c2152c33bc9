"""GPU_DEV_LOCAL_GPUS: what it may say, and what is told to those who write something else."""

# ruff: noqa: N802 -- the driver has names of its own
import pytest

from reservation_core.adapters.local.inventory import BadGpusSettingError, Inventory, parse_gpus


def cards(text: str) -> dict[str, list[str]]:
    return {node.name: [gpu.gpu_type for gpu in node.gpus] for node in parse_gpus(text, "here")}


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("h100:4", {"here": ["h100"] * 4}),
        ("a100-80gb:1", {"here": ["a100-80gb"]}),
        ("h100:2,t4:1", {"here": ["h100", "h100", "t4"]}),
        ("a=h100:2;b=t4:1,l4:1", {"a": ["h100", "h100"], "b": ["t4", "l4"]}),
        (" h100 : 2 ; b = t4 : 1 ; ", {"here": ["h100", "h100"], "b": ["t4"]}),
        ("rack-1.node_2=l40s:1", {"rack-1.node_2": ["l40s"]}),
    ],
)
def test_what_can_be_said(text: str, nodes: dict[str, list[str]]) -> None:
    assert cards(text) == nodes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "''"),
        ("4", "'4'"),
        ("h100", "no count"),
        ("h100:", "no count"),
        ("h100:0", "no count"),
        ("h100:-1", "no count"),
        ("h100:1.5", "no count"),
        ("h100:²", "no count"),
        (":4", "lower-case"),
        ("H100:4", "lower-case"),
        ("h100:4,", "lower-case"),
        ("a=h100:4;;b=t4:1", "lower-case"),
        ("=h100:4", "no name"),
        ("a b=h100:4", "no name"),
        ("../a=h100:4", "no name"),
        ("a=b=h100:4", "no name"),
        ("h100:4;t4:1", "two nodes"),
        ("a=h100:1;a=t4:1", "two nodes"),
        ("h100:1025", "more than 1024"),
        ("h100:99999999999", "no count"),
        (";".join(f"n{n}=t4:1" for n in range(65)), "more than 64"),
        (";".join(f"n{n}=t4:1000" for n in range(17)), "more than 16384"),
    ],
)
def test_what_cannot_be_said(text: str, complaint: str) -> None:
    with pytest.raises(BadGpusSettingError, match=complaint) as caught:
        parse_gpus(text, "here")
    assert "GPU_DEV_LOCAL_GPUS" in str(caught.value)
    assert "h100:4" in str(caught.value)


def test_indices_run_on_within_a_node_and_uuids_stay_the_same() -> None:
    (node,) = parse_gpus("a=h100:2,t4:2", "here")
    assert [gpu.index for gpu in node.gpus] == [0, 1, 2, 3]
    assert [gpu.uuid for gpu in node.gpus] == [f"GPU-sim-a-{index}" for index in range(4)]
    assert parse_gpus("a=h100:2,t4:2", "elsewhere") == (node,)


def test_the_largest_cluster() -> None:
    nodes = parse_gpus(";".join(f"n{n}=h100:256" for n in range(64)), "here")
    assert sum(len(node.gpus) for node in nodes) == 16_384


def test_simulated_cards_say_so() -> None:
    inventory = Inventory("h100:1", "here")
    assert inventory.simulated
    assert ("gpu-dev/simulated", "true") in inventory.nodes()[0].labels
    assert inventory.foreign() == []


class _Nvml:
    """A driver with two cards, as far as the inventory asks; NVML itself is only there with a card."""

    NVML_ERROR_GPU_IS_LOST = 15

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self) -> None:
        self.lost: set[int] = set()

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise self.NVMLError(self.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{handle}".encode()

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> "_Nvml":
        return self

    total = 141 * 2**30


def test_a_card_that_fell_off_the_bus_is_lost_not_absent() -> None:
    inventory, driver = Inventory(None, "here"), _Nvml()
    inventory._nvml = driver
    (before,) = inventory.nodes()
    assert [(gpu.gpu_type, gpu.uuid, gpu.memory_bytes) for gpu in before.gpus] == [
        ("h200", "GPU-0", 141 * 2**30),
        ("h200", "GPU-1", 141 * 2**30),
    ]
    driver.lost.add(1)
    (after,) = inventory.nodes()
    assert [gpu.condition.value for gpu in after.gpus] == ["usable", "lost"]
    assert after.gpus[1].uuid == "GPU-1"


def test_without_a_driver_there_are_no_cards_and_a_word_on_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def no_library() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_library)
    (node,) = Inventory(None, "here").nodes()
    assert (node.name, node.gpus, node.ready) == ("here", (), True)
    assert node.detail is not None
    assert "GPU_DEV_LOCAL_GPUS=h100:4" in node.detail
