"""Pods with the seed's map, as their makers write them, and what the webhook has told them."""

from typing import Any

from tests.kubernetes.api_client import JsonObject

SEED = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n"
EXPECTED = [("node1", "0,1"), ("node2", "2"), ("node3", "0,1,2"), ("node4", "3"), ("node4", "3")]


def pod(name: str, text: str | None = SEED, **spec: Any) -> JsonObject:
    """A pod with a map, or without one."""
    return {
        "metadata": {"name": name, "annotations": {} if text is None else {"gpu-scheduling-map": text}},
        "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def pods_of(namespace: str) -> str:
    """Where a namespace's pods are."""
    return f"/api/v1/namespaces/{namespace}/pods"


def told(of: JsonObject) -> tuple[str, str]:
    """The node that was noted, and the cards that every container sees."""
    values = set()
    for container in [*of["spec"]["containers"], *of["spec"].get("initContainers", [])]:
        last = {variable["name"]: variable for variable in container["env"]}
        assert last["CUDA_DEVICE_ORDER"]["value"] == "PCI_BUS_ID"
        assert "valueFrom" not in last["CUDA_VISIBLE_DEVICES"]
        values.add(last["CUDA_VISIBLE_DEVICES"].get("value", ""))
    (value,) = values
    assert of["metadata"]["annotations"]["gpu-dev/map-devices"] == value
    return of["metadata"]["annotations"]["gpu-dev/map-node"], value
