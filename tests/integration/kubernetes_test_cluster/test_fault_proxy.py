"""The fault proxy does the harm that it is told to, and none otherwise."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.kubernetes.api_client import ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm, Partition
from tests.kubernetes.node.kubelet import Kubelet
from tests.waiting import eventually

_NUMBERS = itertools.count()
_SOON = aiohttp.ClientTimeout(total=0.3)


@pytest.fixture
async def http(api_server: ApiServer, fault_proxy: FaultProxy) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that retries nothing, through the proxy."""
    headers = {"Authorization": f"Bearer {api_server.admin_token}"}
    async with aiohttp.ClientSession(fault_proxy.url, headers=headers) as session:
        yield session


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[ApiClient]:
    """Past the proxy."""
    async with api_server.client() as client:
        yield client


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def pod() -> JsonObject:
    """A pod that nothing will run."""
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "image"}]}
    return {"metadata": {"name": f"pod-{next(_NUMBERS)}"}, "spec": spec}


async def names(api: ApiClient, pods: str) -> list[str]:
    """Of all pods there are."""
    return [item["metadata"]["name"] for item in (await api.call("GET", pods))["items"]]


async def test_without_rules_everything_passes(
    http: aiohttp.ClientSession, api: ApiClient, pods: str, fault_proxy: FaultProxy
) -> None:
    body = pod()
    async with http.post(pods, json=body) as answer:
        assert answer.status == 201
        assert (await answer.json())["metadata"]["name"] == body["metadata"]["name"]
    assert await names(api, pods) == [body["metadata"]["name"]]
    assert [(seen.method, seen.code) for seen in fault_proxy.requests] == [("POST", 201)]


async def test_an_answer_is_given_as_often_as_the_rule_says(
    http: aiohttp.ClientSession, api: ApiClient, pods: str, fault_proxy: FaultProxy
) -> None:
    rule = fault_proxy.inject(Harm.ANSWER, "POST", "/pods$", code=429, times=2, retry_after_s=7)
    for expected in (429, 429, 201):
        async with http.post(pods, json=pod()) as answer:
            assert answer.status == expected
            if expected == 429:
                assert answer.headers["Retry-After"] == "7"
                assert (await answer.json())["reason"] == "TooManyRequests"
    assert rule.used == 2
    assert len(await names(api, pods)) == 1


async def test_a_dropped_request_does_nothing_and_a_dropped_answer_does(
    http: aiohttp.ClientSession, api: ApiClient, pods: str, fault_proxy: FaultProxy
) -> None:
    for harm, there in ((Harm.DROP_REQUEST, 0), (Harm.DROP_ANSWER, 1)):
        fault_proxy.inject(harm, "POST", times=1)
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.post(pods, json=pod())
        assert len(await names(api, pods)) == there


async def test_a_timeout_after_success(
    http: aiohttp.ClientSession, api: ApiClient, pods: str, fault_proxy: FaultProxy
) -> None:
    fault_proxy.inject(Harm.ANSWER_INSTEAD, "POST", code=504, times=1)
    async with http.post(pods, json=pod()) as answer:
        assert answer.status == 504
    fault_proxy.inject(Harm.HANG_AFTER, "POST", times=1)
    asking = asyncio.create_task(http.post(pods, json=pod()))
    await eventually(lambda: _count(api, pods, 2))
    await asyncio.wait({asking}, timeout=0.3)
    assert not asking.done()
    asking.cancel()


async def _count(api: ApiClient, pods: str, count: int) -> bool:
    return len(await names(api, pods)) == count


async def test_watches_can_be_cut_and_broken(
    http: aiohttp.ClientSession, api: ApiClient, pods: str, fault_proxy: FaultProxy
) -> None:
    version = (await api.call("GET", pods))["metadata"]["resourceVersion"]
    query = {"watch": "1", "resourceVersion": version}
    async with http.get(pods, params=query) as watch:
        await api.call("POST", pods, pod())
        assert json.loads(await watch.content.readline())["type"] == "ADDED"
        assert fault_proxy.cut_watches() == 1
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.content.read()
    fault_proxy.inject(Harm.CUT_STREAM, "GET", "watch=", lines=0, times=1)
    with pytest.raises(aiohttp.ClientError):
        async with http.get(pods, params=query) as watch:
            await watch.read()
    fault_proxy.inject(Harm.ERROR_EVENT, "GET", "watch=", lines=1, code=410, times=1)
    async with http.get(pods, params=query) as watch:
        events = [json.loads(line) for line in (await watch.text()).splitlines()]
    assert [event["type"] for event in events] == ["ADDED", "ERROR"]
    assert (events[1]["object"]["code"], events[1]["object"]["reason"]) == (410, "Expired")


async def test_nothing_gets_through_a_partition_and_everything_after_it(
    http: aiohttp.ClientSession, api: ApiClient, pods: str, fault_proxy: FaultProxy
) -> None:
    fault_proxy.partition(Partition.REFUSED)
    with pytest.raises(aiohttp.ClientConnectionError):
        await http.post(pods, json=pod())
    fault_proxy.heal()
    async with http.post(pods, json=pod()) as answer:
        assert answer.status == 201
    fault_proxy.partition(Partition.HUNG)
    with pytest.raises(TimeoutError):
        await http.post(pods, json=pod(), timeout=_SOON)
    assert len(await names(api, pods)) == 1
    fault_proxy.heal()
    async with http.post(pods, json=pod()) as answer:
        assert answer.status == 201


async def test_a_hung_watch_goes_on_when_the_partition_ends(
    http: aiohttp.ClientSession, api: ApiClient, pods: str, fault_proxy: FaultProxy
) -> None:
    version = (await api.call("GET", pods))["metadata"]["resourceVersion"]
    async with http.get(pods, params={"watch": "1", "resourceVersion": version}) as watch:
        fault_proxy.partition(Partition.HUNG)
        await api.call("POST", pods, pod())
        line = asyncio.create_task(watch.content.readline())
        await asyncio.wait({line}, timeout=0.3)
        assert not line.done()
        fault_proxy.heal()
        assert json.loads(await line)["type"] == "ADDED"


async def test_a_log_is_followed_through_it(
    http: aiohttp.ClientSession, api: ApiClient, pods: str, kubelet: Kubelet
) -> None:
    body = pod()
    body["spec"] |= {"nodeName": "node-a"}
    body["spec"]["containers"][0]["command"] = ["sh", "-c", "echo a; sleep 0.2; echo b"]
    await api.call("POST", pods, body)
    name = body["metadata"]["name"]
    await eventually(lambda: name in kubelet.started)
    async with http.get(f"{pods}/{name}/log", params={"follow": "true"}) as log:
        assert await log.text() == "a\nb\n"
