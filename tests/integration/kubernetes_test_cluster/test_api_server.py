"""What our code relies on in an API server: the same tests for the emulator and for a real one."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kubernetes.api_client import MERGE, STRATEGIC, ApiAnswerError, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer

_NUMBERS = itertools.count()


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[ApiClient]:
    async with api_server.client() as client:
        yield client


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(name: str | None = None, labels: dict[str, str] | None = None, **spec: Any) -> JsonObject:
    """A pod that nothing will run."""
    return {
        "metadata": {"name": name or f"pod-{next(_NUMBERS)}", "labels": labels or {}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "image"}], **spec},
    }


async def refused(call: Any) -> ApiAnswerError:
    """The error that a call is answered with."""
    with pytest.raises(ApiAnswerError) as raised:
        await call
    return raised.value


async def watched(api: ApiClient, path: str, **query: str) -> list[tuple[str, str]]:
    """Types and names of a watch's events until it ends; an error's code for a name."""
    text = await api.text(path, watch="1", **{"timeoutSeconds": "1", **query})
    events = [json.loads(line) for line in text.splitlines()]
    return [
        (event["type"], event["object"].get("metadata", {}).get("name") or str(event["object"].get("code", "")))
        for event in events
    ]


async def test_a_name_is_taken_once(api: ApiClient, pods: str) -> None:
    first = await api.call("POST", pods, pod("one"))
    assert first["metadata"]["uid"]
    assert first["status"]["phase"] == "Pending"
    again = await refused(api.call("POST", pods, pod("one")))
    assert (again.code, "AlreadyExists" in str(again)) == (409, True)


@pytest.mark.parametrize(
    "broken",
    [
        pod("Upper"),
        pod("x" * 254),
        pod("ok", containers=[]),
        pod("ok", containers=[{"name": "main", "image": ""}]),
        pod("ok", {"label": "not a value!"}),
        pod("ok", containers=[{"name": "main", "image": "i", "env": [{"name": "a=b", "value": ""}]}]),
        pod("ok", hostname="-no"),
    ],
)
async def test_what_is_no_pod_is_refused(api: ApiClient, pods: str, broken: JsonObject) -> None:
    assert (await refused(api.call("POST", pods, broken))).code == 422


async def test_a_namespace_must_be_there(api: ApiClient) -> None:
    assert (await refused(api.call("POST", "/api/v1/namespaces/there-is-none/pods", pod()))).code == 404
    assert (await refused(api.call("GET", "/apis/resource.k8s.io/v1000/resourceslices"))).code == 404


async def test_selectors_choose(api: ApiClient, pods: str) -> None:
    for name, labels in (("a", {"who": "ada", "n": "1"}), ("b", {"who": "bob"}), ("c", {})):
        await api.call("POST", pods, pod(name, labels))

    async def chosen(**query: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await api.call("GET", pods, **query))["items"]]

    assert await chosen() == ["a", "b", "c"]
    assert await chosen(labelSelector="who=ada") == ["a"]
    assert await chosen(labelSelector="who in (ada,bob),!n") == ["b"]
    assert await chosen(labelSelector="who!=ada") == ["b", "c"]
    assert await chosen(labelSelector="who") == ["a", "b"]
    assert await chosen(fieldSelector="metadata.name=c") == ["c"]
    assert await chosen(fieldSelector="status.phase=Pending,spec.nodeName=") == ["a", "b", "c"]


async def test_pages_show_one_moment(api: ApiClient, pods: str) -> None:
    for number in range(5):
        await api.call("POST", pods, pod(f"p{number}"))
    first = await api.call("GET", pods, limit="2")
    await api.call("DELETE", f"{pods}/p3")
    await api.call("POST", pods, pod("p5"))
    rest = await api.call("GET", pods, limit="10", **{"continue": first["metadata"]["continue"]})
    names = [item["metadata"]["name"] for item in first["items"] + rest["items"]]
    assert names == ["p0", "p1", "p2", "p3", "p4"]
    assert first["metadata"]["resourceVersion"] == rest["metadata"]["resourceVersion"]
    assert not rest["metadata"].get("continue")


async def test_a_watch_goes_on_where_a_list_ended(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("old", {"mine": "yes"}))
    version = (await api.call("GET", pods))["metadata"]["resourceVersion"]
    await api.call("POST", pods, pod("new", {"mine": "yes"}))
    await api.call("POST", pods, pod("other"))
    await api.call("PATCH", f"{pods}/old", {"metadata": {"labels": {"mine": "no"}}}, content_type=MERGE)
    await api.call("PATCH", f"{pods}/other", {"metadata": {"labels": {"mine": "yes"}}}, content_type=MERGE)
    await api.call("DELETE", f"{pods}/new")
    everything = await watched(api, pods, resourceVersion=version)
    assert everything == [
        ("ADDED", "new"),
        ("ADDED", "other"),
        ("MODIFIED", "old"),
        ("MODIFIED", "other"),
        ("MODIFIED", "new"),
        ("DELETED", "new"),
    ]
    mine = await watched(api, pods, resourceVersion=version, labelSelector="mine=yes")
    assert mine == [("ADDED", "new"), ("DELETED", "old"), ("ADDED", "other"), ("MODIFIED", "new"), ("DELETED", "new")]


async def test_a_watch_without_a_version_begins_with_what_is(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a"))
    assert await watched(api, pods) == [("ADDED", "a")]


async def test_a_watch_can_mark_where_what_was_ends(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a"))
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    text = await api.text(pods, watch="1", timeoutSeconds="1", **initial)
    added, bookmark, *_ = [json.loads(line) for line in text.splitlines()]
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    assert bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(added["object"]["metadata"]["resourceVersion"])


async def test_a_change_of_what_has_changed_is_refused(api: ApiClient, pods: str) -> None:
    old = await api.call("POST", pods, pod("a"))
    await api.call("PATCH", f"{pods}/a", {"metadata": {"annotations": {"x": "1"}}}, content_type=MERGE)
    assert (await refused(api.call("PUT", f"{pods}/a", old))).code == 409
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"], "annotations": {"x": "2"}}}
    assert (await refused(api.call("PATCH", f"{pods}/a", stale, content_type=MERGE))).code == 409
    other = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "status": {"message": "x"}}
    assert (await refused(api.call("PATCH", f"{pods}/a/status", other, content_type=MERGE))).code == 422


async def test_patches_merge(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a"))
    annotated = {"metadata": {"annotations": {"x": "1", "y": "2"}}}
    await api.call("PATCH", f"{pods}/a", annotated, content_type=STRATEGIC)
    without = {"metadata": {"annotations": {"x": None}}}
    merged = await api.call("PATCH", f"{pods}/a", without, content_type=MERGE)
    assert merged["metadata"]["annotations"] == {"y": "2"}
    steps = [{"op": "replace", "path": "/metadata/annotations/y", "value": "3"}]
    stepped = await api.call("PATCH", f"{pods}/a", steps, content_type="application/json-patch+json")
    assert stepped["metadata"]["annotations"] == {"y": "3"}


async def test_status_and_spec_are_changed_apart(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a"))
    ignored = await api.call("PATCH", f"{pods}/a", {"status": {"phase": "Running"}}, content_type=MERGE)
    assert ignored["status"]["phase"] == "Pending"
    running = {"status": {"phase": "Running"}, "metadata": {"annotations": {"x": "1"}}}
    changed = await api.call("PATCH", f"{pods}/a/status", running, content_type=MERGE)
    assert changed["status"]["phase"] == "Running"
    assert changed["metadata"]["annotations"] == {"x": "1"}


async def test_a_deadline_can_be_set_and_lowered_and_nothing_else(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a"))
    for seconds, code in ((100, None), (50, None), (60, 422), (None, 422)):
        patch = {"spec": {"activeDeadlineSeconds": seconds}}
        call = api.call("PATCH", f"{pods}/a", patch, content_type=MERGE)
        if code is None:
            assert (await call)["spec"]["activeDeadlineSeconds"] == seconds
        else:
            assert (await refused(call)).code == code
    renamed = {"spec": {"hostname": "b"}}
    assert (await refused(api.call("PATCH", f"{pods}/a", renamed, content_type=MERGE))).code == 422


async def test_a_bound_pod_is_gone_when_its_kubelet_says_so(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a", nodeName="some-node"))
    marked = await api.call("DELETE", f"{pods}/a", {"gracePeriodSeconds": 60})
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 60
    assert marked["metadata"]["deletionTimestamp"]
    longer = await api.call("DELETE", f"{pods}/a", {"gracePeriodSeconds": 90})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 60
    shorter = await api.call("DELETE", f"{pods}/a", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    await api.call("DELETE", f"{pods}/a", {"gracePeriodSeconds": 0})
    assert (await refused(api.call("GET", f"{pods}/a"))).code == 404
    assert (await refused(api.call("DELETE", f"{pods}/a"))).code == 404


async def test_a_finished_or_unbound_pod_goes_at_once(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("unbound"))
    await api.call("POST", pods, pod("over", nodeName="some-node"))
    await api.call("PATCH", f"{pods}/over/status", {"status": {"phase": "Succeeded"}}, content_type=MERGE)
    for name in ("unbound", "over"):
        await api.call("DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 60})
        assert (await refused(api.call("GET", f"{pods}/{name}"))).code == 404


async def test_a_finalizer_holds_a_pod(api: ApiClient, pods: str) -> None:
    body = pod("a")
    body["metadata"]["finalizers"] = ["tests.example/hold"]
    await api.call("POST", pods, body)
    await api.call("DELETE", f"{pods}/a")
    assert (await api.call("GET", f"{pods}/a"))["metadata"]["deletionTimestamp"]
    await api.call("PATCH", f"{pods}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert (await refused(api.call("GET", f"{pods}/a"))).code == 404


async def test_a_finalizer_is_one_of_many_and_comes_before_the_deletion(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a", nodeName="some-node"))

    async def change(key: str, name: str) -> list[str]:
        body = {"metadata": {key: [name]}}
        answer = await api.call("PATCH", f"{pods}/a", body, content_type=STRATEGIC)
        return sorted(answer["metadata"].get("finalizers", []))

    for name in ("tests.example/a", "tests.example/b", "tests.example/b"):
        found = await change("finalizers", name)
    assert found == ["tests.example/a", "tests.example/b"]
    assert await change("$deleteFromPrimitiveList/finalizers", "tests.example/b") == ["tests.example/a"]
    await api.call("DELETE", f"{pods}/a", {"gracePeriodSeconds": 60})
    assert await change("finalizers", "tests.example/a") == ["tests.example/a"]
    assert (await refused(change("finalizers", "tests.example/c"))).code == 422


async def test_a_deletion_can_mean_one_pod_only(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a"))
    wrong = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert (await refused(api.call("DELETE", f"{pods}/a", wrong))).code == 409


async def test_a_pod_is_bound_once(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a"))
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "some-node"}}
    await api.call("POST", f"{pods}/a/binding", binding)
    bound = await api.call("GET", f"{pods}/a")
    assert bound["spec"]["nodeName"] == "some-node"
    assert [
        condition["status"] for condition in bound["status"]["conditions"] if condition["type"] == "PodScheduled"
    ] == ["True"]
    assert (await refused(api.call("POST", f"{pods}/a/binding", binding))).code == 409


async def test_a_binding_brings_its_annotations_and_means_one_pod(api: ApiClient, pods: str) -> None:
    thing = pod("a")
    thing["metadata"]["annotations"] = {"tests.example/kept": "1", "tests.example/replaced": "old"}
    made = await api.call("POST", pods, thing)
    target = {"kind": "Node", "name": "some-node"}
    brought = {"tests.example/replaced": "new", "tests.example/added": "2"}
    for wrong in ({"uid": "00000000-0000-0000-0000-000000000000"}, {"resourceVersion": "1"}):
        metadata = {"name": "a", "annotations": brought, **wrong}
        refusal = await refused(api.call("POST", f"{pods}/a/binding", {"metadata": metadata, "target": target}))
        assert refusal.code == 409
    metadata = {"name": "a", "annotations": brought, "uid": made["metadata"]["uid"]}
    await api.call("POST", f"{pods}/a/binding", {"metadata": metadata, "target": target})
    bound = await api.call("GET", f"{pods}/a")
    assert bound["metadata"]["annotations"] == {"tests.example/kept": "1", **brought}
    assert bound["spec"]["nodeName"] == "some-node"


async def test_a_log_of_what_no_node_has_taken_is_empty(api: ApiClient, pods: str) -> None:
    await api.call("POST", pods, pod("a"))
    assert await api.text(f"{pods}/a/log") == ""


async def test_a_watch_from_what_was_forgotten_is_refused(api_server: ApiServer, api: ApiClient, pods: str) -> None:
    version = (await api.call("GET", pods))["metadata"]["resourceVersion"]
    await api.call("POST", pods, pod("a"))
    await api_server.forget_changes()
    assert await watched(api, pods, resourceVersion=version) == [("ERROR", "410")]


async def test_many_clients_see_the_same_order(api: ApiClient, pods: str) -> None:
    version = (await api.call("GET", pods))["metadata"]["resourceVersion"]
    first = asyncio.create_task(watched(api, pods, resourceVersion=version))
    second = asyncio.create_task(watched(api, pods, resourceVersion=version))
    await asyncio.gather(*(api.call("POST", pods, pod()) for _ in range(20)))
    assert len(await first) == 20
    assert await first == await second


async def test_service_accounts_have_tokens(api_server: ApiServer, namespace: str) -> None:
    token = await api_server.token_of(namespace, "somebody")
    async with api_server.client(token) as client:
        if api_server.real:
            assert (await refused(client.call("GET", f"/api/v1/namespaces/{namespace}/pods"))).code == 403
        else:
            assert (await client.call("GET", f"/api/v1/namespaces/{namespace}/pods"))["items"] == []
