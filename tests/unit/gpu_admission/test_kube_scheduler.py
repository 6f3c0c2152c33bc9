"""kube-scheduler's extender contract: its questions as it writes them, our answers as it decodes them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_admission.json_walk import BadJsonError
from gpu_admission.kube_scheduler import (
    ArgsReader,
    ExtenderArgs,
    read_args,
    read_binding,
    written_binding,
    written_filter,
    written_filter_error,
    written_priorities,
)
from pod_scheduling.ports.extender import Binding, Filtered
from tests.unit.gpu_admission.go_decoding import Anything, ListOf, MapOf, Struct, Text, Whole, decode

NODE_LIST = Struct({"metadata": Anything(), "items": ListOf(Anything())}, pointer=True)
FILTER_RESULT = Struct(
    {
        "Nodes": NODE_LIST,
        "NodeNames": ListOf(Text()),
        "FailedNodes": MapOf(Text()),
        "FailedAndUnresolvableNodes": MapOf(Text()),
        "Error": Text(),
    }
)
PRIORITIES = ListOf(Struct({"Host": Text(), "Score": Whole()}))
BINDING_RESULT = Struct({"Error": Text()})

POD = {"metadata": {"name": "train-0", "namespace": "team-a", "uid": "u-1"}, "spec": {"containers": []}, "status": {}}
BY_NAME = b'{"Pod":' + json.dumps(POD).encode() + b',"Nodes":null,"NodeNames":["n1","n2","n3"]}'
# As Go writes objects: quantities as text, an escape that Python would write otherwise, and a number with an exponent.
NODE_1 = '{"metadata":{"name":"n1","annotations":{"a":"\\u003cb\\u003e \u00fc"}},"spec":{},"status":{"x":1.50e+02}}'
NODE_2 = '{"metadata":{"name":"n2"},"spec":{},"status":{"capacity":{"nvidia.com/gpu":"8"}}}'
BY_OBJECT = (
    f'{{"Pod":{json.dumps(POD)},"Nodes":{{"metadata":{{"resourceVersion":"7"}},"items":[{NODE_1},{NODE_2}]}},'
    '"NodeNames":null}'
).encode()


def test_candidates_by_name() -> None:
    args = read_args(BY_NAME)
    assert args == ExtenderArgs(POD, ("n1", "n2", "n3"))
    written = written_filter(args, Filtered(("n1", "n3"), {"n2": "all 8 cards are taken"}))
    assert written == (
        b'{"Nodes":null,"NodeNames":["n1","n3"],"FailedNodes":{"n2":"all 8 cards are taken"},'
        b'"FailedAndUnresolvableNodes":{},"Error":""}'
    )
    assert decode(written, FILTER_RESULT) == {
        "Nodes": None,
        "NodeNames": ["n1", "n3"],
        "FailedNodes": {"n2": "all 8 cards are taken"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_candidates_as_objects_go_back_byte_for_byte() -> None:
    args = read_args(BY_OBJECT)
    assert args.nodes == ("n1", "n2")
    written = written_filter(args, Filtered(("n1",), {}, {"n2": "team-a has no quota for T4"}))
    assert (
        written
        == (
            f'{{"Nodes":{{"metadata":{{"resourceVersion":"7"}},"items":[{NODE_1}]}},"NodeNames":null,"FailedNodes":{{}},'
            '"FailedAndUnresolvableNodes":{"n2":"team-a has no quota for T4"},"Error":""}'
        ).encode()
    )
    found = decode(written, FILTER_RESULT)
    assert (found["NodeNames"], found["Nodes"]["items"]) == (None, [json.loads(NODE_1)])


def test_no_node_fits_is_an_empty_list_and_not_null() -> None:
    by_name = decode(written_filter(read_args(BY_NAME), Filtered(())), FILTER_RESULT)
    assert by_name["NodeNames"] == []  # null would be read as no answer about names at all
    by_object = decode(written_filter(read_args(BY_OBJECT), Filtered(())), FILTER_RESULT)
    assert by_object["Nodes"]["items"] == []


def test_an_error_is_one_whatever_else_the_type_has() -> None:
    found = decode(written_filter_error('not read yet: "pods"'), FILTER_RESULT)
    assert found["Error"] == 'not read yet: "pods"'
    assert (found["Nodes"], found["NodeNames"]) == (None, None)


@pytest.mark.parametrize(
    "names",
    [("Pod", "Nodes", "NodeNames"), ("pod", "nodes", "nodenames"), ("POD", "NODES", "NODENAMES"),
     ("pod", "nodes", "nodeNames")],
)  # fmt: skip
def test_names_of_members_are_read_in_any_letter_case(names: tuple[str, str, str]) -> None:
    pod, nodes, node_names = names
    by_name = json.dumps({pod: POD, nodes: None, node_names: ["n1", "n2"]}).encode()
    assert read_args(by_name) == ExtenderArgs(POD, ("n1", "n2"))
    by_object = json.dumps({pod: POD, nodes: {"items": [json.loads(NODE_1)]}, node_names: None}).encode()
    args = read_args(by_object)
    assert (args.pod, args.nodes, args.by_name) == (POD, ("n1",), False)
    assert args.objects is not None


def test_no_candidates_are_candidates() -> None:
    for nodes in ({"items": None}, {"items": []}, {}):
        args = read_args(json.dumps({"Pod": POD, "Nodes": nodes, "NodeNames": None}).encode())
        assert (args.nodes, args.by_name) == ((), False)
        assert decode(written_filter(args, Filtered(())), FILTER_RESULT)["Nodes"]["items"] == []
    assert read_args(json.dumps({"Pod": POD, "Nodes": None, "NodeNames": []}).encode()).nodes == ()


def test_where_names_and_objects_come_the_names_are_asked_about_and_both_go_back() -> None:
    both = json.dumps({"Pod": POD, "Nodes": {"items": [json.loads(NODE_1)]}, "NodeNames": ["n1", "n2"]}).encode()
    args = read_args(both)
    assert args.nodes == ("n1", "n2")
    found = decode(written_filter(args, Filtered(("n1", "n2"))), FILTER_RESULT)
    assert found["NodeNames"] == ["n1", "n2"]
    assert [resource["metadata"]["name"] for resource in found["Nodes"]["items"]] == ["n1"]


def test_priorities() -> None:
    written = written_priorities(("n1", 'odd"name'), (10, 0))
    assert written == b'[{"Host":"n1","Score":10},{"Host":"odd\\"name","Score":0}]'
    assert decode(written, PRIORITIES) == [{"Host": "n1", "Score": 10}, {"Host": 'odd"name', "Score": 0}]
    assert decode(written_priorities((), ()), PRIORITIES) == []


def test_bindings() -> None:
    asked = b'{"PodName":"train-0","PodNamespace":"team-a","PodUID":"u-1","Node":"n1"}'
    assert read_binding(asked) == Binding("team-a", "train-0", "u-1", "n1")
    assert read_binding(asked.lower()) == Binding("team-a", "train-0", "u-1", "n1")
    assert written_binding() == b'{"Error": ""}'
    assert decode(written_binding(), BINDING_RESULT) == {"Error": ""}
    assert decode(written_binding("no card is left"), BINDING_RESULT) == {"Error": "no card is left"}


def asked(**members: Any) -> bytes:
    return json.dumps({"Pod": POD, "Nodes": None, "NodeNames": ["n1"], **members}).encode()


@pytest.mark.parametrize("read", [read_args, ArgsReader().read], ids=["walked", "at once"])
@pytest.mark.parametrize(
    ("metadata", "namespace", "uid"),
    [
        ({"name": "p"}, "default", "default/p"),
        ({"name": "p", "namespace": "a", "uid": None}, "a", "a/p"),
        ({"name": "p", "namespace": "", "uid": "u"}, "default", "u"),
        ({"uid": "u", "labels": {"x": "y"}}, "default", "u"),
    ],
)
def test_who_writes_a_pod_by_hand_may_leave_away_what_the_api_server_adds(
    read: Callable[[bytes], ExtenderArgs], metadata: dict[str, Any], namespace: str, uid: str
) -> None:
    pod = read(asked(Pod={"metadata": metadata, "spec": {"containers": []}})).pod
    assert pod == {"metadata": {**metadata, "namespace": namespace, "uid": uid}, "spec": {"containers": []}}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"Pod"', "not JSON"),
        (b'{"Pod":', "not JSON"),
        (b'{"Pod": {}', "not JSON"),
        (b'{"Pod": {},}', "not JSON"),
        (b'{Pod: {}}', "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"NodeNames": [NaN]}', "not JSON"),
        (b'{"NodeNames": [-1e999]}', "not JSON"),
        (b'{"a": ' + b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
        (BY_NAME + b"{}", "not JSON"),
        (b"[]", "the body must be an object"),
        (b'"text"', "the body must be an object"),
        (b"{}", "Nodes, or as NodeNames"),
        (b"null", "Nodes, or as NodeNames"),
        (asked(NodeNames=None), "Nodes, or as NodeNames"),
        (asked(Pod=None), "Pod must be a pod"),
        (asked(Pod=[]), "Pod must be a pod"),
        (asked(Pod={}), "metadata and spec"),
        (asked(Pod={"metadata": {}, "spec": 7}), "metadata and spec"),
        (asked(Pod={"metadata": {"namespace": "a"}, "spec": {}}), "Pod.metadata must have a uid, or a name at least"),
        (asked(Pod={"metadata": {"namespace": "a", "uid": ""}, "spec": {}}), "must have a uid, or a name at least"),
        (asked(Pod={"metadata": {"name": "p", "uid": 7}, "spec": {}}), "Pod.metadata.uid must be a text"),
        (asked(Pod={"metadata": {"name": "p" * 254}, "spec": {}}), "Pod.metadata.name must be a text"),
        (asked(Pod={"metadata": {"namespace": 7, "uid": "u"}, "spec": {}}), "Pod.metadata.namespace must be a text"),
        (asked(NodeNames="n1"), "list of names"),
        (asked(NodeNames=["n1", 7]), "each of NodeNames"),
        (asked(NodeNames=[""]), "each of NodeNames"),
        (asked(NodeNames=["n" * 254]), "each of NodeNames"),
        (asked(NodeNames=["n"] * 100_001), "no more than 100000 nodes"),
        (asked(Nodes=[]), "Nodes must be an object"),
        (asked(Nodes={"items": {}}), "Nodes.items must be a list"),
        (asked(Nodes={"items": [7]}), "each of Nodes.items must be a node"),
        (asked(Nodes={"items": [{"metadata": {}}]}), "metadata.name must be a text"),
    ],
)  # fmt: skip
def test_half_a_question_is_told_what_it_lacks(body: bytes, told: str) -> None:
    with pytest.raises(BadJsonError, match=told):
        read_args(body)
    with pytest.raises(BadJsonError, match=told):
        ArgsReader().read(body)


@pytest.mark.parametrize("lacking", ["PodName", "PodNamespace", "PodUID", "Node"])
@pytest.mark.parametrize("value", [None, "", 7, "x" * 300])
def test_half_a_binding_is_told_what_it_lacks(lacking: str, value: object) -> None:
    whole = {"PodName": "train-0", "PodNamespace": "team-a", "PodUID": "u-1", "Node": "n1"}
    with pytest.raises(BadJsonError, match=f"{lacking} must be a text"):
        read_binding(json.dumps({**whole, lacking: value}).encode())


@pytest.mark.parametrize("lacking", ["PodName", "PodNamespace"])
@pytest.mark.parametrize("value", ["..", "../../nodes", "a?x=1", "a/b", "a#", "A", "ü", "\ud800", "a\n", "%2e%2e"])
def test_a_binding_names_a_pod_and_no_other_path(lacking: str, value: str) -> None:
    whole = {"PodName": "train-0", "PodNamespace": "team-a", "PodUID": "u-1", "Node": "n1"}
    with pytest.raises(BadJsonError, match=f"{lacking} must be a name"):
        read_binding(json.dumps({**whole, lacking: value}).encode())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
_NODES = st.lists(st.tuples(_NAMES, _JSON), max_size=6, unique_by=lambda node: node[0])


@given(_NODES, st.sampled_from([None, 1, " "]), st.booleans(), st.data())
def test_any_nodes_written_anyhow_come_back_as_they_were(
    nodes: list[tuple[str, Any]], indent: Any, ascii_only: bool, data: st.DataObject
) -> None:
    def written(value: Any) -> str:
        return json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    items = [written({"status": rest, "metadata": {"labels": rest, "name": name}}) for name, rest in nodes]
    body = f'{{"nodes": {{"items": [ {" , ".join(items)} ], "kind" : "NodeList"}}, "Pod": {written(POD)} }}'
    args = read_args(body.encode())
    assert args.nodes == tuple(name for name, _ in nodes)
    fitting = data.draw(st.lists(st.sampled_from([name for name, _ in nodes]), unique=True)) if nodes else []
    answer = written_filter(args, Filtered(tuple(fitting))).decode()
    kept = [item for item, (name, _) in zip(items, nodes, strict=True) if name in fitting]
    assert f'"items":[{",".join(kept)}]' in answer
    assert json.loads(answer)["Nodes"]["kind"] == "NodeList"


_MEMBERS = st.sampled_from(["Pod", "Nodes", "NodeNames", "pod", "NODENAMES", "other"])
_SAID = st.sampled_from(
    [POD, {}, None, [], ["n1"], ["n1", "n2"], ["n2", "n1"], ["n1", "n1"], ["n\u00fc", '"'], ["\ud800"], ["a", 7], [""],
     {"items": [{"metadata": {"name": "n1"}}]}, {"metadata": {"x": 1e300, "y": 2**70}, "spec": {}}]
)  # fmt: skip


def read_or_told(read: Callable[[bytes], ExtenderArgs], body: bytes) -> ExtenderArgs | str:
    try:
        return read(body)
    except BadJsonError as problem:
        return str(problem)


OTHER_POD = {**POD, "metadata": {**POD["metadata"], "uid": "u-2"}}
_USUAL = st.tuples(
    st.tuples(st.just("Pod"), st.sampled_from([POD, OTHER_POD])),
    st.tuples(st.just("Nodes"), st.none()),
    st.tuples(st.just("NodeNames"), st.sampled_from([["n1", "n2"], ["n2", "n1"], ["n1"], []])),
).map(list)
_MORE = st.lists(st.tuples(_MEMBERS, _SAID), min_size=1, max_size=4)
_QUESTION = st.one_of(_USUAL, st.tuples(_USUAL, _MORE).map(lambda parts: parts[0] + parts[1]), _MORE)


@given(st.lists(_QUESTION, min_size=1, max_size=6), st.booleans())
def test_what_is_read_in_one_step_is_what_the_walk_finds(
    questions: list[list[tuple[str, Any]]], ascii_only: bool
) -> None:
    reader = ArgsReader()
    for members in questions:
        said = ", ".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=ascii_only)}" for name, value in members)
        body = f"{{{said}}}".encode("utf-8", "surrogatepass")
        found, expected = read_or_told(reader.read, body), read_or_told(read_args, body)
        assert found == expected
        if isinstance(found, ExtenderArgs):
            for fitting in (found.nodes, found.nodes[1:], ()):
                answer = json.loads(written_filter(found, Filtered(fitting)))
                assert answer["NodeNames"] == (list(fitting) if found.by_name else None)


@pytest.mark.parametrize(
    "body",
    [BY_NAME[:-1], BY_NAME + b" ", BY_NAME.replace(b"n2", b"n\xff"), BY_NAME.replace(b"train-0", b"\xff"),
     BY_NAME.replace(b'"u-1"', b"1e999"), BY_NAME.replace(b'"u-1"', b"NaN"), BY_NAME.replace(b'"u-1"', b"[" * 90_000)],
)  # fmt: skip
def test_what_is_no_json_is_none_however_it_is_read(body: bytes) -> None:
    assert read_or_told(ArgsReader().read, body) == read_or_told(read_args, body)
