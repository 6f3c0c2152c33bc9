"""How answers look in each format."""

import json
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import yaml
from msgspec import convert
from msgspec.structs import replace

from gpu_dev.display.gpu_types import summarise, with_closed_nodes
from gpu_dev.display.output import Format, as_json, show_list, show_one
from gpu_dev.display.views import DEAD_LETTER, EVENT, GPU, GPU_TYPE, JOB, JOB_DETAILS, NODE
from gpu_dev.terminal import ProgramOutput, put, say
from gpu_dev.wire.audit_log import JobEvent
from gpu_dev.wire.dead_letters import DeadLetterOut
from gpu_dev.wire.nodes import GpuOut, NodeOut
from tests.unit.gpu_dev.examples import NOON, a_job


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
def test_a_table_has_local_times_and_short_durations() -> None:
    header, row = show_list([a_job()], JOB, Format.TABLE).splitlines()
    assert header.split() == ["ID", "NAME", "USER", "STATUS", "GPUS", "FOR", "PLACE", "STARTS/ENDS"]
    *cells, weekday, day, month, year, clock, zone = row.split()
    assert cells == ["job-7f3k9q2m", "train", "alice", "queued", "2", "h100", "4h", "3"]
    assert (weekday, day, month, year, clock, zone) == ("Sun", "1", "Mar", "2026", "22:00:00", "JST")


@pytest.mark.usefixtures("in_tokyo")
def test_times_in_a_name_stay_and_those_of_the_servers_sentence_are_local() -> None:
    detail = "2 h100 are free at 2026-03-01T13:00:00Z."
    one = a_job(name="eval-2026-01-01T00:00Z", reason={"code": "waiting_for_gpus", "detail": detail})
    assert "eval-2026-01-01T00:00Z" in show_list([one], JOB, Format.TABLE)
    shown = show_one(one, JOB_DETAILS, Format.TABLE)
    assert "eval-2026-01-01T00:00Z" in shown
    assert "free at Sun 1 Mar 2026 22:00 JST." in shown


def test_wide_has_more_columns() -> None:
    header = show_list([a_job()], JOB, Format.WIDE).splitlines()[0]
    assert header.split()[-6:] == ["WHERE", "REASON", "EXIT", "PRIORITY", "PROJECT", "CREATED"]


@pytest.mark.usefixtures("in_tokyo")
def test_json_is_the_wire_in_utc() -> None:
    read = json.loads(show_list([a_job()], JOB, Format.JSON))
    assert read["next_cursor"] is None
    [job] = read["items"]
    assert (job["estimated_start_at"], job["duration"]) == ("2026-03-01T13:00:00.000Z", "PT4H")


def test_yaml_says_the_same_as_json() -> None:
    one = a_job(name="ünï: - x")
    assert yaml.safe_load(show_one(one, JOB, Format.YAML)) == json.loads(show_one(one, JOB, Format.JSON))


def test_name_is_ids_alone() -> None:
    assert show_list([a_job(), a_job(id="job-00000000")], JOB, Format.NAME) == "job-7f3k9q2m\njob-00000000\n"
    assert show_list([], JOB, Format.NAME) == ""


def test_an_empty_table_says_what_to_do() -> None:
    assert "gpu-dev run" in show_list([], JOB, Format.TABLE)


@pytest.mark.parametrize("form", [Format.TABLE, Format.WIDE])
def test_names_cannot_steer_the_terminal(form: Format) -> None:
    evil = a_job(name="\x1b[2J\x07gone\r\n[bold]x[/bold]\u202e")
    for shown in (show_list([evil], JOB, form), show_one(evil, JOB_DETAILS, form)):
        assert not set(shown) & {"\x1b", "\x07", "\r", "\u202e"}
        assert r"\x1b[2J\x07gone\r\n[bold]x[/bold]" in shown


def test_a_long_cell_is_never_cut_or_wrapped() -> None:
    name = "n" * 500
    assert name in show_list([a_job(name=name)], JOB, Format.TABLE)


def test_no_colour_off_a_terminal() -> None:
    assert "\x1b" not in show_list([a_job(status="running")], JOB, Format.TABLE)


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_on_a_terminal_unless_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert ("\x1b[32m" in show_list([a_job(status="running")], JOB, Format.TABLE)) is coloured


def a_card(node: str, index: int, state: str, free_in_h: int | None = None, kind: str = "h100") -> GpuOut:
    free_at = None if free_in_h is None else NOON + timedelta(hours=free_in_h)
    holder = {"id": None, "user": None, "yours": False} if state == "held" else None
    return convert(
        {
            "node": node,
            "index": index,
            "uuid": None,
            "gpu_type": kind,
            "memory_bytes": None,
            "state": state,
            "holder": holder,
            "free_at": free_at,
        },
        GpuOut,
    )


@pytest.mark.usefixtures("in_tokyo")
def test_the_health_of_a_gpu_has_all_its_times_in_the_local_zone() -> None:
    card = a_card("n1", 0, "quarantined")
    card.quarantined_at, card.quarantine_reason = NOON, "1 error within 24 h: Xid 79 at 2026-03-01T11:00:00Z"
    shown = show_list([card], GPU, Format.WIDE)
    assert "since Sun 1 Mar 2026 21:00:00 JST: 1 error within 24 h: Xid 79 at Sun 1 Mar 2026 20:00 JST" in shown


A_NODE: dict[str, Any] = {
    "name": "node1", "ready": True, "schedulable": True, "detail": None, "gpu_types": [], "gpus": 0, "free": 0,
    "last_seen_at": NOON, "labels": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({}, "yes"),
        ({"ready": False}, "no"),
        ({"schedulable": False}, "no"),
        ({"fenced_at": NOON}, "no"),
        ({"cordoned_at": NOON}, "no"),
    ],
    ids=["well", "silent", "unschedulable", "fenced", "cordoned"],
)
def test_a_node_is_schedulable_where_something_new_would_be_started(node: dict[str, Any], said: str) -> None:
    found = convert(A_NODE | node, NodeOut)
    header, row = (line.split() for line in show_list([found], NODE, Format.TABLE).splitlines())
    assert row[header.index("SCHEDULABLE")] == said


def test_cards_are_counted_by_type_with_the_next_free_time() -> None:
    cards = [
        a_card("n1", 0, "held", 3),
        a_card("n1", 1, "held", 2),
        a_card("n2", 0, "lost", 1),
        a_card("n1", 2, "free", kind="t4"),
        a_card("n2", 3, "free", kind="t4"),
        a_card("n2", 4, "free", kind="t4"),
    ]
    h100, t4 = summarise(cards)
    assert (h100.total, h100.free, h100.held, h100.unusable) == (3, 0, 2, 1)
    # The lost card's time means nothing: it will not be free then.
    assert h100.next_free_at == NOON + timedelta(hours=2)
    assert (t4.free, t4.most_free_on_one_node, t4.next_free_at) == (3, 2, None)
    assert "now" in show_list([t4], GPU_TYPE, Format.TABLE)
    soon = replace(cards[3], taken_at=NOON)
    [t4_soon] = summarise([soon, *cards[4:]])
    assert (t4_soon.free, t4_soon.taken_soon, t4_soon.unusable, t4_soon.most_free_on_one_node) == (3, 1, 0, 2)
    assert t4_soon.free_until is None
    header, row = (re.split("  +", line.strip()) for line in show_list([t4_soon], GPU_TYPE, Format.TABLE).splitlines())
    assert [row[header.index(title)] for title in ("FREE", "TAKEN SOON", "NEXT FREE")] == ["2", "1", "now"]
    assert "free until " in show_list([soon], GPU, Format.TABLE)
    assert "cordoned" in show_list(
        [soon], with_closed_nodes(GPU, [convert(A_NODE | {"name": "n1", "cordoned_at": NOON}, NodeOut)]), Format.TABLE
    )
    cordoned = convert(A_NODE | {"name": "n2", "cordoned_at": NOON}, NodeOut)
    (_, t4) = summarise(cards, [cordoned])
    assert (t4.free, t4.unusable, t4.most_free_on_one_node) == (1, 2, 1)
    cordoned = convert(A_NODE | {"name": "n1", "cordoned_at": NOON}, NodeOut)
    h100, _ = summarise(cards, [cordoned])
    assert h100.next_free_at is None  # what ends there makes room for nobody


@pytest.mark.usefixtures("in_tokyo")
def test_cards_that_are_all_taken_soon_are_free_until_the_last_of_them_is_taken() -> None:
    soon = [replace(a_card("n1", index, "free"), taken_at=NOON + timedelta(minutes=20 * index)) for index in (2, 1)]
    [h100] = summarise([*soon, a_card("n1", 0, "held", 3)])
    assert (h100.free, h100.taken_soon, h100.held, h100.next_free_at) == (2, 2, 1, None)
    [row] = show_list([h100], GPU_TYPE, Format.TABLE).splitlines()[1:]
    assert re.split("  +", row.strip()) == ["h100", "3", "0", "2", "1", "0", "now, until Sun 1 Mar 2026 21:40:00 JST"]


def test_what_nodes_have_beside_their_cards_is_added_up_by_type() -> None:
    whole = {
        "ready": True,
        "schedulable": True,
        "detail": None,
        "gpus": 2,
        "free": 2,
        "last_seen_at": NOON,
        "labels": {},
    }
    amounts = {"cpus": 16, "cpus_free": 4.5, "memory_bytes": 2**36, "memory_bytes_free": 2**35}
    nodes = [
        convert(whole | {"name": name, "gpu_types": types} | said, NodeOut)
        for name, types, said in (("n1", ["h100"], amounts), ("n2", ["h100"], amounts), ("n3", ["t4"], {}))
    ]
    h100, t4 = summarise([a_card("n1", 0, "free"), a_card("n3", 0, "free", kind="t4")], nodes)
    assert (h100.cpus, h100.cpus_free, h100.memory_bytes, h100.memory_bytes_free) == (32, 9, 2**37, 2**36)
    assert (t4.cpus, t4.memory_bytes) == (None, None)
    assert "9 of 32" in show_list([h100], GPU_TYPE, Format.WIDE)
    assert "64 GiB of 128 GiB" in show_list([h100], GPU_TYPE, Format.WIDE)


EVIL = "\x1b[31mred\x9b2J\u202eback\x7f"


def test_what_others_wrote_steers_no_terminal_wherever_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    """Sentences around it, tables behind it, JSON and YAML: only what we made ourselves may steer."""
    put(f"{EVIL}\n")
    put(show_list([a_job(name=EVIL)], JOB, Format.TABLE) + f"{EVIL}\n")
    put(as_json({"name": EVIL}))
    for form in Format:
        put(show_list([a_job(name=EVIL)], JOB, form))
        put(show_one(a_job(name=EVIL), JOB, form))
    say(EVIL)
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert not set(text) & {"\x1b", "\x9b", "\u202e", "\x7f"}
        assert "back" in text


def test_what_programs_read_is_what_was_written() -> None:
    [job] = json.loads(show_list([a_job(name=EVIL)], JOB, Format.JSON))["items"]
    assert job["name"] == EVIL
    [job] = yaml.safe_load(show_list([a_job(name=EVIL)], JOB, Format.YAML))["items"]
    assert job["name"] == EVIL
    assert json.loads(as_json({EVIL: "ü 😀"})) == {EVIL: "ü 😀"}
    assert "ü 😀" in as_json({"name": "ü 😀"})


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"50%\r100%\n", b"50%\r100%\n"),
        (b"\x1b[31mred\x1b[0m \x1b[2A\x1b[K\x1b[?25l", b"\x1b[31mred\x1b[0m \x1b[2A\x1b[K\x1b[?25l"),
        (b"\x1b]0;title\x07", rb"\x1b]0;title\x07"),
        (b"\x1b]52;c;ZXZpbA==\x1b\\", b"\\x1b]52;c;ZXZpbA==\\x1b\\"),
        (b"\x1b[6n\x1b[c\x1bP+q\x1b\\", b"\\x1b[6n\\x1b[c\\x1bP+q\\x1b\\"),
        (b"\x00\x7f\xc2\x9b31m", rb"\x00\x7f\x9b31m"),
        ("gr\u00fc\u00dfe \u4e2d".encode(), "gr\u00fc\u00dfe \u4e2d".encode()),
        (b"\xff\xfe not text", b"\xff\xfe not text"),
        (b"the end \x1b[", b"the end \\x1b["),
    ],
)
def test_what_a_program_printed_draws_and_steers_nothing(printed: bytes, shown: bytes) -> None:
    for size in (1, 2, 3, 1000):
        output = ProgramOutput()
        chunks = [printed[at : at + size] for at in range(0, len(printed), size)]
        assert b"".join([*map(output.take, chunks), output.rest()]) == shown


def test_data_of_events_and_dead_letters_is_json() -> None:
    event = JobEvent(
        id=1, at=NOON, kind="shared", actor="ann", before=None, after=None, reason=None, data={"user": "ben", "n": None}
    )
    assert '{"user":"ben","n":null}' in show_list([event], EVENT, Format.WIDE)
    letter = DeadLetterOut(queue="gpu_jobs", id=1, read_count=5, enqueued_at=NOON, error="x", body={"job": "a"})
    assert '{"job":"a"}' in show_list([letter], DEAD_LETTER, Format.WIDE)
