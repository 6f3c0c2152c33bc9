"""GPU_DEV_LOCAL_GPUS: what it may say, and what is told to those who write something else."""

# ruff: noqa: N802 -- the driver has names of its own
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.local.inventory import BadGpusSettingError, LocalInventory, parse_gpus
from reservation_core.domain.cards.link_words import format_links


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
    inventory = LocalInventory("h100:1", "here")
    assert inventory.simulated
    assert ("gpu-dev/simulated", "true") in inventory.nodes()[0].labels
    assert inventory.foreign() == []


class _Nvml:
    """A driver with two cards, as far as the inventory asks; NVML itself is only there with a card."""

    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_FEATURE_ENABLED = 1
    NVML_NVLINK_MAX_LINKS = 18
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2
    NVML_TOPOLOGY_INTERNAL = 0
    NVML_TOPOLOGY_SINGLE = 10
    NVML_TOPOLOGY_MULTIPLE = 20
    NVML_TOPOLOGY_HOSTBRIDGE = 30
    NVML_TOPOLOGY_NODE = 40
    NVML_TOPOLOGY_SYSTEM = 50
    cards = 2

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, cards: int = 2) -> None:
        self.lost: set[int] = set()
        self.cards = cards
        self.nvlinks: dict[tuple[int, int], str] = {}  # (card, link): where it leads, as a bus id or `switch`
        self.down: set[tuple[int, int]] = set()
        self.paths: dict[tuple[int, int], int] = {}
        self.silent = False

    def nvmlDeviceGetCount(self) -> int:
        return self.cards

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"0000:{handle:02X}:00.0")

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 12:
            raise self.NVMLError(self.NVML_ERROR_INVALID_ARGUMENT)
        if (handle, link) not in self.nvlinks:
            raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return int((handle, link) not in self.down)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=self.nvlinks[handle, link].encode())

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return 2 if self.nvlinks[handle, link].startswith("00000000:F") else 1

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        if self.silent:
            raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return self.paths.get((min(one, other), max(one, other)), self.NVML_TOPOLOGY_SYSTEM)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise self.NVMLError(self.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{handle}".encode()

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> "_Nvml":
        return self

    total = 141 * 2**30


def test_a_card_that_fell_off_the_bus_is_lost_not_absent() -> None:
    inventory, driver = LocalInventory(None, "here"), _Nvml()
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


def links_of(driver: _Nvml) -> str | None:
    inventory = LocalInventory(None, "here")
    inventory._nvml = driver
    (node,) = inventory.nodes()
    return None if node.links is None else format_links(node.links)


def test_cards_that_are_joined_by_nothing_but_the_bus() -> None:
    driver = _Nvml(7)
    driver.paths = {(0, 1): 0, (0, 2): 10, (0, 3): 20, (0, 4): 30, (0, 5): 40, (0, 6): 50}
    first, *_ = (links_of(driver) or "").split(";")
    assert first == "X PIX PIX PXB PHB NODE SYS"
    driver.paths[0, 1] = 60  # a level that nobody knew when this was written
    assert (links_of(driver) or "").startswith("X SYS PIX")


def test_cards_that_are_joined_directly() -> None:
    driver = _Nvml(3)
    # Four links between 0 and 1, one of which is down; and one to something that is no card.
    driver.nvlinks = {(0, link): "00000000:01:00.0" for link in range(4)}
    driver.nvlinks |= {(1, link): "00000000:00:00.0" for link in range(4)}
    driver.nvlinks[2, 0] = "00000000:E0:00.0"
    driver.down = {(0, 3), (1, 3)}
    assert links_of(driver) == "X NV3 SYS;NV3 X SYS;SYS SYS X"


def test_cards_that_are_joined_by_switches() -> None:
    driver = _Nvml(3)
    for card, links in ((0, 12), (1, 10)):
        driver.nvlinks |= {(card, link): f"00000000:F{link:X}:00.0" for link in range(links)}
    assert links_of(driver) == "X NV10 SYS;NV10 X SYS;SYS SYS X"


def test_one_card_is_joined_with_nobody() -> None:
    assert links_of(_Nvml(1)) is None
    assert links_of(_Nvml(65)) is None


def test_a_driver_that_does_not_know_costs_nothing_but_a_line_in_the_log() -> None:
    inventory, driver = LocalInventory(None, "here"), _Nvml()
    inventory._nvml = driver
    driver.silent = True
    with capture_logs() as lines:
        assert [node.links for _ in range(3) for node in inventory.nodes()] == [None] * 3
    assert [line["event"] for line in lines] == ["the driver reports no links between its GPUs"]
    # What it has said once holds while there are as many cards.
    driver.silent = False
    assert inventory.nodes()[0].links == ((0, 1), (1, 0))
    driver.lost.add(1)
    assert inventory.nodes()[0].links == ((0, 1), (1, 0))
    driver.cards = 1
    assert inventory.nodes()[0].links is None


def test_without_a_driver_there_are_no_cards_and_a_word_on_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def no_library() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_library)
    (node,) = LocalInventory(None, "here").nodes()
    assert (node.name, node.gpus, node.ready) == ("here", (), True)
    assert node.detail is not None
    assert "GPU_DEV_LOCAL_GPUS=h100:4" in node.detail
