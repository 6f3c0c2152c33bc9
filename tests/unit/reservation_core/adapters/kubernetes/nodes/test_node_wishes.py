"""Whether a pod prefers some of the nodes that would do for it."""

from typing import Any

import pytest

from reservation_core.adapters.kubernetes.nodes.node_wishes import has_preferences

PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}


@pytest.mark.parametrize(
    ("spec", "wishes"),
    [
        ({}, False),
        ({"affinity": None, "topologySpreadConstraints": None}, False),
        ({"affinity": {"nodeAffinity": REQUIRED}}, False),
        ({"affinity": {"nodeAffinity": PREFERRED}}, True),
        ({"affinity": {"nodeAffinity": REQUIRED, "podAffinity": PREFERRED}}, True),
        ({"affinity": {"podAntiAffinity": PREFERRED}}, True),
        ({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}, False),
        ({"affinity": "none", "topologySpreadConstraints": "none"}, False),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}, {}]}, False),
        (
            {
                "topologySpreadConstraints": [
                    {"whenUnsatisfiable": "DoNotSchedule"},
                    None,
                    {"whenUnsatisfiable": "ScheduleAnyway"},
                ]
            },
            True,
        ),
    ],
)
def test_preferences_are_wishes_and_demands_are_none(spec: dict[str, Any], wishes: bool) -> None:
    assert has_preferences(spec) is wishes
