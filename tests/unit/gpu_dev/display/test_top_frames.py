"""What `gpu-dev top` shows: order, filter, keys, as many lines as there is room for, and no data as no data."""

from typing import Any

import msgspec
import pytest

from gpu_dev.display.top_frames import KEYS, TOP, Choice, Sort, chosen, fitted, frame, keys_in
from gpu_dev.wire.nodes import GpuNowOut, Holder
from reservation_core.domain.statuses import GpuState

ANN = Holder(id="job-1", user="ann", yours=True)
BOB = Holder(id="job-2", user="bob", yours=False)


def gpu(index: int, utilisation: float | None = None, **more: Any) -> GpuNowOut:
    plain: dict[str, Any] = {
        "node": "n1", "gpu_type": "h100", "memory_bytes": 80 * 2**30, "state": GpuState.FREE, "holder": None,
        "simulated": False, "sampled_at": None, "memory_used_bytes": None, "power_w": None, "temperature_c": None,
        "ecc_uncorrected": None, "xid": None, "processes": None,
    }  # fmt: skip
    return GpuNowOut(index=index, utilisation=utilisation, **(plain | more))


LAB = [
    gpu(0, 0.25, power_w=300.0, holder=ANN, state=GpuState.HELD),
    gpu(1),
    gpu(2, 0.75, power_w=100.0, holder=BOB, state=GpuState.HELD),
    gpu(3, 0.0, gpu_type="a100", xid=79, ecc_uncorrected=2),
]


def pressed(*keys: str) -> Choice:
    choice = Choice()
    for key in keys:
        choice = choice.press(key)
    return choice


def order(choice: Choice) -> list[int]:
    return [found.index for found in chosen(LAB, choice)]


@pytest.mark.parametrize(
    ("keys", "indices"),
    [
        ("", [2, 0, 3, 1]),
        ("r", [3, 0, 2, 1]),  # without data last all the same
        ("p", [0, 2, 1, 3]),
        ("n", [0, 1, 2, 3]),
        ("nr", [3, 2, 1, 0]),
        ("x", [2, 0, 3, 1]),
        ("y", [0]),
        ("yy", [2, 0, 3, 1]),
        ("/A100\r", [3]),
        ("/held bob\r", [2]),
        ("/boo\x7fb\r", [2]),
        ("/bob\r/\x7f\x7f\x7f\r", [2, 0, 3, 1]),
        ("/bob\r\x1b", [2, 0, 3, 1]),
        ("/bob\x1b", [2, 0, 3, 1]),
        ("/n1/3\r", [3]),
    ],
)
def test_keys_choose_order_and_filter(keys: str, indices: list[int]) -> None:
    assert order(pressed(*keys)) == indices


@pytest.mark.parametrize(
    ("keys", "is_over"), [("q", True), ("\x03", True), ("\x04", True), ("/q", False), ("/q\x03", True)]
)
def test_keys_that_quit(keys: str, is_over: bool) -> None:
    assert pressed(*keys).is_over is is_over


def test_a_frame_has_as_many_lines_as_the_terminal() -> None:
    many = [gpu(index, index / 100) for index in range(50)]
    lines = frame(many, Choice(sort=Sort.NODE), rows=10).split("\n")
    assert len(lines) == 10
    assert [line.split()[0] for line in lines[3:9]] == [f"n1/{index}" for index in range(6)]
    down = fitted(many, pressed("n", *["\x1b[6~"] * 9), 10)
    assert down.first == 44
    assert frame(many, down, rows=10).split("\n")[8].startswith("n1/49")
    assert down.press("\x1b[A").first == 43
    assert len(frame(many, Choice()).split("\n")) == 3 + 50


def test_no_data_is_no_zero() -> None:
    lines = {line.split()[0]: line for line in frame(LAB, Choice()).split("\n")[3:]}
    assert "no data" in lines["n1/1"]
    assert "░░░░░░░░░░   0%" in lines["n1/3"]
    assert "Xid 79, 2 ECC" in lines["n1/3"]
    assert "██░░░░░░░░  25%" in lines["n1/0"]
    assert frame(LAB, Choice()).startswith("4 GPUs, 2 held, mean utilisation 33%, 0.4 kW, 1 without data.\n")
    assert frame([gpu(0)], Choice()).startswith("1 GPU, 0 held, no samples.\n")


def test_recordings_are_marked() -> None:
    assert "Simulated." in frame([gpu(0, 0.5, simulated=True)], Choice())
    assert "Simulated." not in frame(LAB, Choice())


def test_the_filter_is_named() -> None:
    assert frame(LAB, Choice(words="bob", only_yours=True)).split("\n")[1:] == [
        'By utilisation; 0 of 4 that you hold with "bob".',
        "No GPU matches.",
    ]
    assert "Filter: bo_" in frame(LAB, pressed(*"/bo"), rows=20)


def test_the_filter_finds_states_as_they_are_shown() -> None:
    """Nothing is free on a node that takes nothing new."""
    [state] = [column for column in TOP.columns if column.title == "STATE"]
    cordoned = msgspec.structs.replace(state, value=lambda _: "cordoned")
    shown = msgspec.structs.replace(TOP, columns=(cordoned,))
    assert len(chosen(LAB, Choice(words="cordoned"), shown)) == len(LAB)
    assert chosen(LAB, Choice(words="free"), shown) == []


def test_names_can_t_steer_the_terminal() -> None:
    hostile = Holder(id="job-1", user="a\x1b[2J", yours=False)
    assert "\x1b" not in frame([gpu(0, holder=hostile, node="n\x1bc")], Choice(words="n\x1bc"))


def test_keys_of_several_characters_are_one() -> None:
    assert [*keys_in("q\x1b[A\x1b[6~/")] == ["q", "\x1b[A", "\x1b[6~", "/"]


def test_a_usual_terminal_shows_all_keys() -> None:
    assert len(KEYS) < 80
    for key in "qumptnr/y":
        assert f"{key} " in KEYS
