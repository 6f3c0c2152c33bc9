"""The scheduling map's grammar, row by row; its index rules; and texts that mean harm."""

import time
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.maps.scheduling_map import (
    COMPLETION_INDEX_LABEL,
    INDEX_ANNOTATION,
    MAX_BYTES,
    MAX_DEVICES,
    MAX_INDEX,
    POD_INDEX_LABEL,
    Controller,
    MapEntry,
    PodIdentity,
    SchedulingMapError,
    index_of,
    map_digest,
    parse_map,
)

SEED = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n"
GPU = "GPU-8f4b1b5e-0d1c-4a3b-9c2d-112233445566"
MIG = "MIG-00000000-1111-2222-3333-444444444444"


def read(text: str) -> dict[int, tuple[str, str]]:
    """Index to node and devices."""
    return {index: (entry.node, entry.cuda_visible_devices) for index, entry in parse_map(text).entries.items()}


def test_the_seeds_map() -> None:
    expected = {0: ("node1", "0,1"), 1: ("node2", "2"), 2: ("node3", "0,1,2"), 3: ("node4", "3"), 4: ("node4", "3")}
    assert read(SEED) == expected
    assert parse_map(SEED).digest == map_digest(SEED)
    assert len(map_digest(SEED)) == 64


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("0=node1:0,1", {0: ("node1", "0,1")}),
        ("0=node1:0,1 1=node2:2", {0: ("node1", "0,1"), 1: ("node2", "2")}),
        ("0=node1:0\t1=node2:2   2=node3:none", {0: ("node1", "0"), 1: ("node2", "2"), 2: ("node3", "")}),
        ("0=node1:0\r\n1=node2:1\r\n", {0: ("node1", "0"), 1: ("node2", "1")}),
        ("\n\n  0 = node1 : 0 , 1  \n\t\n", {0: ("node1", "0,1")}),
        ("0=node1:0, 1", {0: ("node1", "0,1")}),
        ("0=node1:none", {0: ("node1", "")}),
        ("7=node-a.example.org:5", {7: ("node-a.example.org", "5")}),
        ("0=Node_1:0", {0: ("Node_1", "0")}),
        (f"0=n:{GPU}", {0: ("n", GPU)}),
        (f"0=n:{GPU},{MIG}", {0: ("n", f"{GPU},{MIG}")}),
        (f"0=n:{GPU.upper()}", {0: ("n", GPU.upper())}),
        (f"{MAX_INDEX}=n:{MAX_DEVICES - 1}", {MAX_INDEX: ("n", str(MAX_DEVICES - 1))}),
        ("0=n:1\n1=n:1", {0: ("n", "1"), 1: ("n", "1")}),
        ("0=n:2,0,1", {0: ("n", "2,0,1")}),
        ("1=n:0\n0=n:0", {1: ("n", "0"), 0: ("n", "0")}),
        ("0=" + "n" * 253 + ":0", {0: ("n" * 253, "0")}),
    ],
)
def test_what_is_a_map(text: str, entries: Mapping[int, tuple[str, str]]) -> None:
    assert read(text) == entries


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", None, "empty"),
        (" \n\t\r\n", None, "empty"),
        ("node1:0,1", 1, "not index=node:devices"),
        ("0=node1", 1, "not index=node:devices"),
        ("0:node1=0", 1, "not index=node:devices"),
        ("0=node1:0;1=node2:1", 1, "not index=node:devices"),
        ("0=node1:0=1", 1, "not index=node:devices"),
        ("0=node1:0:1", 1, "not index=node:devices"),
        ("0=node1:0, 1=node2:1", 1, "not index=node:devices"),
        ("0=node1:0\r1=node2:1", 1, "not index=node:devices"),
        ("0=node1:0\v1=node2:1", 1, "not index=node:devices"),
        ("0=node1:0\u00a0", 1, "not index=node:devices"),
        ("0=node1:0\n# 1=node2:1", 2, "not index=node:devices"),
        ("=node1:0", 1, "the index is ''"),
        ("a=node1:0", 1, "the index is 'a'"),
        ("-1=node1:0", 1, "the index is '-1'"),
        ("00=node1:0", 1, "the index is '00'"),
        ("+1=node1:0", 1, r"the index is '\+1'"),
        ("1_0=node1:0", 1, "the index is '1_0'"),
        ("٣=node1:0", 1, "the index is '٣'"),
        (f"{MAX_INDEX + 1}=node1:0", 1, "the index is '2147483648'"),
        ("9" * 5000 + "=node1:0", 1, "the index is '9{40}…'"),
        ("0=:0", 1, "'' is not the name of a node"),
        ("0=-a:0", 1, "'-a' is not the name of a node"),
        ("0=a-:0", 1, "'a-' is not the name of a node"),
        ("0=nöde:0", 1, "not the name of a node"),
        ("0=a/b:0", 1, "not the name of a node"),
        ("0=" + "n" * 254 + ":0", 1, "not the name of a node"),
        ("0=node1:", 1, "a device is ''"),
        ("0=node1:0,", 1, "a device is ''"),
        ("0=node1:,0", 1, "a device is ''"),
        ("0=node1:0,,1", 1, "a device is ''"),
        ("0=node1:01", 1, "a device is '01'"),
        ("0=node1:-1", 1, "a device is '-1'"),
        ("0=node1:0x1", 1, "a device is '0x1'"),
        ("0=node1:all", 1, "a device is 'all'"),
        ("0=node1:None", 1, "a device is 'None'"),
        ("0=node1:0-3", 1, "a device is '0-3'"),
        (f"0=node1:{MAX_DEVICES}", 1, "a device is '1024'"),
        ("0=node1:none,0", 1, "a device is 'none'"),
        ("0=node1:0,none", 1, "a device is 'none'"),
        (f"0=node1:0,{GPU}", 1, "a device is 'GPU-"),
        (f"0=node1:{GPU},0", 1, "a device is 'GPU-"),
        (f"0=node1:{GPU[:-1]}", 1, "a device is 'GPU-"),
        (f"0=node1:{GPU}/1/2", 1, "a device is 'GPU-"),
        ("0=node1:0,0", 1, "a device stands twice"),
        ("0=node1:none,none", 1, "a device is 'none'"),
        (f"0=node1:{GPU},GPU-{GPU[4:].upper()}", 1, "a device stands twice"),
        ("0=n:" + ",".join(str(i % MAX_DEVICES) for i in range(MAX_DEVICES + 1)), 1, "more than 1024 devices"),
        ("0=node1:0\n\n0=node2:1", 3, "index 0 stands twice"),
        ("0=node1:0 0=node1:0", 1, "index 0 stands twice"),
        ("0=node1:0\r\n1=node2:x", 2, "a device is 'x'"),
        ("0=n:0\n" + " " * MAX_BYTES, None, "longer than 128 KiB"),
        ("0=n:0\n" + "ä" * (MAX_BYTES // 2), None, "longer than 128 KiB"),
        ("\ud800", 1, "not index=node:devices"),
    ],
)
def test_what_is_no_map(text: str, line: int | None, told: str) -> None:
    with pytest.raises(SchedulingMapError, match=told) as refused:
        parse_map(text)
    assert refused.value.line == line
    assert (f"line {line}: " in str(refused.value)) is (line is not None)
    assert len(str(refused.value)) < 300


def test_an_index_that_the_map_lacks_is_told_with_what_to_add() -> None:
    assert parse_map(SEED).entry(4) == MapEntry(4, "node4", ("3",))
    with pytest.raises(SchedulingMapError, match=r"no entry for index 5; add a line 5=NODE:DEVICES"):
        parse_map(SEED).entry(5)


# --- Round trips.

DEVICES = st.one_of(
    st.just(()),
    st.lists(st.integers(0, MAX_DEVICES - 1).map(str), min_size=1, max_size=16, unique=True).map(tuple),
    st.lists(st.uuids().map(lambda uuid: f"GPU-{uuid}"), min_size=1, max_size=4, unique=True).map(tuple),
)
NODES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
ENTRIES = st.dictionaries(st.integers(0, MAX_INDEX), st.tuples(NODES, DEVICES), min_size=1, max_size=12)
BLANKS = st.text(" \t", max_size=3)


@given(ENTRIES, st.data())
def test_what_is_written_is_read(entries: Mapping[int, tuple[str, tuple[str, ...]]], data: st.DataObject) -> None:
    text = ""
    for index, (node, devices) in entries.items():
        blank = [data.draw(BLANKS) for _ in range(6)]
        said = f"{blank[3]},{blank[3]}".join(devices) or "none"
        end = data.draw(st.sampled_from(["\n", "\r\n", " ", "\t", "\n\n \n"]))
        text += f"{blank[0]}{index}{blank[1]}={blank[1]}{node}{blank[2]}:{blank[4]}{said}{end}"
    found = parse_map(text)
    assert found.entries == {index: MapEntry(index, node, devices) for index, (node, devices) in entries.items()}
    assert list(found.entries) == list(entries)


@given(st.text("0123456789=:,-abn \t\r\n", max_size=60))
def test_whatever_is_read_is_told_in_its_own_form_again(text: str) -> None:
    """No text is read as something that its canonical form is not."""
    try:
        found = parse_map(text)
    except SchedulingMapError:
        return
    written = "\n".join(f"{e.index}={e.node}:{e.cuda_visible_devices or 'none'}" for e in found.entries.values())
    assert parse_map(written).entries == found.entries
    assert "".join(written.split()) == "".join(text.split())


@given(st.text(max_size=200))
def test_any_text_is_a_map_or_is_told_why_not(text: str) -> None:
    with suppress(SchedulingMapError):
        assert parse_map(text).entries


# --- Texts that mean harm.

HOSTILE = {
    "blanks, then a word": lambda n: " " * n + "x",
    "an index, then blanks": lambda n: "0" + " " * n + "x",
    "a node, then blanks": lambda n: "0=a" + " " * n + "x",
    "blanks before devices": lambda n: "0=a:" + " " * n + "x=",
    "blanks after devices": lambda n: "0=a:1" + " " * n + "=",
    "commas": lambda n: "0=a:1" + "," * n + "=",
    "blank commas": lambda n: "0=a:1" + " ," * (n // 2) + "=",
    "blanks between commas": lambda n: "0=a:1,2" + " " * (n // 2) + "," + " " * (n // 2) + "=",
    "one long word": lambda n: "1" * n,
    "one long device": lambda n: "0=a:" + "1" * n,
    "one long node": lambda n: "0=" + "a-" * (n // 2) + ":1",
    "equal signs": lambda n: "=" * n,
    "colons": lambda n: "0=" + ":" * n,
    "empty lines": lambda n: "\n" * n,
    "CRLFs": lambda n: "\r\n" * (n // 2),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_largest_hostile_map_is_refused_at_once(name: str) -> None:
    """A quadratic parser takes tens of seconds for these."""
    text = HOSTILE[name](MAX_BYTES - 100)
    started = time.process_time()
    with pytest.raises(SchedulingMapError):
        parse_map(text)
    assert time.process_time() - started < 5


# --- The index of a pod.


def pod(
    name: str = "",
    controller: Controller = Controller.NONE,
    *,
    generated: bool = False,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> PodIdentity:
    return PodIdentity(name, controller, generated, annotations or {}, labels or {})


SET, BARE, OTHER = Controller.STATEFUL_SET, Controller.NONE, Controller.OTHER
TOLD = {INDEX_ANNOTATION: "7"}
POD_LABEL, JOB_LABEL = {POD_INDEX_LABEL: "5"}, {COMPLETION_INDEX_LABEL: "3"}


@pytest.mark.parametrize(
    ("who", "index"),
    [
        (pod("check-0", SET), 0),
        (pod("check-12", SET, generated=True), 12),  # StatefulSets' pods have a generateName as well
        (pod("webhook-test-2"), 2),
        (pod("a-1-2"), 2),
        (pod("check-4", SET, labels=POD_LABEL), 5),
        (pod("check-4", SET, labels=POD_LABEL, annotations=TOLD), 7),
        (pod("check-4", SET, labels={**POD_LABEL, **JOB_LABEL}), 5),
        (pod("job-x7k2p", OTHER, labels=JOB_LABEL), 3),
        (pod("", OTHER, generated=True, labels=JOB_LABEL), 3),
        (pod("rs-5d9f-4", OTHER, annotations=TOLD), 7),
        (pod("", generated=True, annotations={INDEX_ANNOTATION: "0"}), 0),
        (pod(f"a-{MAX_INDEX}"), MAX_INDEX),
    ],
)
def test_the_index_of_a_pod(who: PodIdentity, index: int) -> None:
    assert index_of(who) == index


@pytest.mark.parametrize(
    ("who", "told"),
    [
        (pod("web-5d9f8c7b6d-12345", OTHER), "no index"),  # a ReplicaSet's suffix may well be digits
        (pod("web-7", OTHER), "no index"),
        (pod("web-7", generated=True), "no index"),
        (pod("", SET), "no index"),
        (pod("worker"), "no index"),
        (pod("worker-"), "no index"),
        (pod("worker-01"), "no index"),
        (pod("worker7"), "no index"),
        (pod("worker-7a"), "no index"),
        (pod("worker-7\n"), "no index"),
        (pod(f"worker-{MAX_INDEX + 1}"), "no index"),
        (pod("7"), "no index"),
        (pod("a-1", annotations={INDEX_ANNOTATION: ""}), f"{INDEX_ANNOTATION} is ''"),
        (pod("a-1", annotations={INDEX_ANNOTATION: "01"}), f"{INDEX_ANNOTATION} is '01'"),
        (pod("a-1", annotations={INDEX_ANNOTATION: "-1"}), f"{INDEX_ANNOTATION} is '-1'"),
        (pod("a-1", labels={POD_INDEX_LABEL: "x"}), f"{POD_INDEX_LABEL} is 'x'"),
        (pod("a-1", OTHER, labels={COMPLETION_INDEX_LABEL: "1 "}), f"{COMPLETION_INDEX_LABEL} is '1 '"),
    ],
)
def test_a_pod_without_an_index_is_told_how_to_get_one(who: PodIdentity, told: str) -> None:
    with pytest.raises(SchedulingMapError, match=told):
        index_of(who)
