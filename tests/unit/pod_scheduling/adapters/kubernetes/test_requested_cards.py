"""What a pod asks for is the same whether it was asked before or not."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.adapters.kubernetes.requested_cards import requested
from pod_scheduling.domain.extender.asked_cards import CardResources, asked_cards
from reservation_core.adapters.kubernetes.pods.pod_requests import pod_requests
from tests.examples import examples

amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "tencent.com/vcuda-core", "tencent.com/vcuda-memory"]),
    st.sampled_from(["1", "2", "100", "150", "500m", "1Gi", 3, None, "no", {"a": 1}]),
    max_size=3,
)
resources = st.none() | st.fixed_dictionaries({}, optional={"limits": amounts, "requests": amounts})
containers = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["main", "other", 3]),
            "resources": resources,
            "restartPolicy": st.sampled_from(["Always", "Never"]),
            "env": st.just([{"name": "A"}]),
        },
    )
    | st.sampled_from([None, "x", []]),
    max_size=3,
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "containers": containers | st.none() | st.just("x"),
        "initContainers": containers,
        "resources": resources,
        "overhead": amounts,
        "nodeName": st.just("n"),
    },
)


@examples(400)
@given(st.lists(specs, min_size=1, max_size=4), st.booleans())
def test_it_is_what_the_spec_alone_says(found: list[dict[str, Any]], other: bool) -> None:
    rules = CardResources(share="example.com/share") if other else CardResources()
    for spec in [*found, *found]:
        requests = pod_requests(spec)
        expected = asked_cards(spec, rules), requests.get("cpu", 0), requests.get("memory", 0)
        assert requested(spec, rules) == expected


def test_half_a_character_is_no_reason_to_fail() -> None:
    spec = {"containers": [{"name": "\ud800", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    assert requested(spec, CardResources())[0].plugin == 1
