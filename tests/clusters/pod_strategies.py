"""Pods as an API server hands them to webhooks, for property tests: whatever it accepts as metadata and containers."""

from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pod_scheduling.domain.maps.scheduling_map import INDEX_ANNOTATION, MAP_ANNOTATION

Json = dict[str, Any]

_NAME = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
_VARIABLE_NAME = st.one_of(
    st.sampled_from(
        [
            "CUDA_VISIBLE_DEVICES",
            "CUDA_DEVICE_ORDER",
            "NVIDIA_VISIBLE_DEVICES",
            "PATH",
            "A~b",
            "cuda/visible",
            "cuda_visible_devices",
        ]
    ),
    st.from_regex(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,8}", fullmatch=True),
)
_VALUE = st.one_of(st.sampled_from(["0,1", "3,1", "", "PCI_BUS_ID", "all", "$(PATH)"]), st.text(max_size=12))
_VALUE_FROM = st.sampled_from(
    [
        {"fieldRef": {"fieldPath": "spec.nodeName"}},
        {"secretKeyRef": {"name": "s", "key": "k"}},
        {"resourceFieldRef": {"resource": "limits.cpu"}},
    ]
)
_VARIABLE = st.one_of(
    st.builds(lambda name: {"name": name}, _VARIABLE_NAME),
    st.builds(lambda name, value: {"name": name, "value": value}, _VARIABLE_NAME, _VALUE),
    st.builds(lambda name, value: {"name": name, "value": value, "valueFrom": None}, _VARIABLE_NAME, _VALUE),
    st.builds(lambda name, source: {"name": name, "valueFrom": source}, _VARIABLE_NAME, _VALUE_FROM),
)
_ABSENT = object()


def _without_absent(pairs: Json) -> Json:
    return {name: value for name, value in pairs.items() if value is not _ABSENT}


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Missing, null, or there."""
    return st.one_of(st.just(_ABSENT), st.none(), strategy)


_CONTAINER = st.builds(
    lambda name, env, env_from, resources, image: _without_absent(
        {"name": name, "env": env, "envFrom": env_from, "resources": resources, "image": image}
    ),
    st.one_of(st.just(_ABSENT), _NAME),
    _maybe(st.lists(_VARIABLE, max_size=5)),
    _maybe(st.just([{"configMapRef": {"name": "c"}}])),
    _maybe(
        st.sampled_from(
            [
                {},
                {"limits": None},
                {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                {"limits": {"nvidia.com/gpu": "0"}},
                {"limits": {"nvidia.com/gpu": "1"}},
            ]
        )
    ),
    st.just("busybox"),
)
_ANNOTATION_NAME = st.one_of(
    st.sampled_from(["gpu-dev/map-index", "gpu-dev/map-digest", "gpu-dev/map-devices", "a.example/b~c", "x"]),
    st.from_regex(r"[a-z][-a-z0-9.]{0,6}(/[A-Za-z0-9][-A-Za-z0-9_.]{0,6}[A-Za-z0-9])?", fullmatch=True),
)


@st.composite
def pods(draw: st.DrawFn, *, maps: st.SearchStrategy[str] | None = None, ours: bool = False) -> Json:
    """A pod; with `maps`, one that carries a map. Some are another scheduler's, unless `ours`."""
    annotations: Any = draw(_maybe(st.dictionaries(_ANNOTATION_NAME, st.text(max_size=8), max_size=4)))
    if maps is not None:
        annotations = {**(annotations if isinstance(annotations, dict) else {}), MAP_ANNOTATION: draw(maps)}
        if draw(st.booleans()):
            annotations[INDEX_ANNOTATION] = str(draw(st.integers(0, 5)))
    metadata = {
        "name": draw(st.one_of(st.just(_ABSENT), st.builds(lambda n, i: f"{n}-{i}", _NAME, st.integers(0, 5)))),
        "generateName": draw(st.one_of(st.just(_ABSENT), _NAME)),
        "namespace": "default",
        "creationTimestamp": None,
        "annotations": annotations,
        "labels": draw(
            _maybe(st.dictionaries(st.sampled_from(["app", "apps.kubernetes.io/pod-index"]), st.just("1"), max_size=2))
        ),
        "ownerReferences": draw(
            _maybe(
                st.lists(
                    st.sampled_from(
                        [
                            {
                                "apiVersion": "apps/v1",
                                "kind": "StatefulSet",
                                "name": "s",
                                "uid": "1",
                                "controller": True,
                            },
                            {
                                "apiVersion": "apps/v1",
                                "kind": "ReplicaSet",
                                "name": "r",
                                "uid": "2",
                                "controller": True,
                            },
                            {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "3"},
                        ]
                    ),
                    max_size=1,
                )
            )
        ),
    }
    schedulers = ["gpu-scheduler"] * 9 + ["default-scheduler"] * (not ours)
    spec = {
        "schedulerName": draw(st.sampled_from(schedulers)),
        "containers": draw(st.lists(_CONTAINER, min_size=1, max_size=3)),
        "initContainers": draw(_maybe(st.lists(_CONTAINER, max_size=2))),
        "nodeName": draw(st.sampled_from([_ABSENT, _ABSENT, _ABSENT, "", "node1", "other"])),
        "resourceClaims": draw(st.sampled_from([_ABSENT, _ABSENT, _ABSENT, None, [], [{"name": "gpu"}]])),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _without_absent(metadata),
        "spec": _without_absent(spec),
        "status": {},
    }


def random_pods(strategy: st.SearchStrategy[Json], count: int) -> list[Json]:
    """So many pods for a real API server to judge, with the names that it insists on."""
    found: list[Json] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(pod: Json) -> None:
        for kind in ("containers", "initContainers"):
            for position, container in enumerate(pod["spec"].get(kind) or ()):
                container["name"] = f"{kind[0]}{position}"
        pod["metadata"].setdefault("generateName", "a")
        del pod["metadata"]["namespace"]
        found.append(pod)

    collect()
    return found
