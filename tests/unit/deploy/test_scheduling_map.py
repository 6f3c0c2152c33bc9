"""What the guide to scheduling maps has people apply: its pods, and that all it names is there."""

import re
from pathlib import Path
from typing import Any

import pytest

from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from reservation_core.domain.pods.reviews import Operation, Patched, PodReview
from tests.chart.hardening import check_objects
from tests.chart.rendering import one, render
from tests.clusters.kubernetes_schemas import validate
from tests.read_yaml import read_all_yaml, read_yaml

ROOT = Path(__file__).parents[3]
GUIDES = ["scheduling-map.md", "enforcing-bookings.md"]


def documents(path: Path) -> list[dict[str, Any]]:
    return [entry for entry in read_all_yaml(path.read_text()) if entry]


def test_the_three_pods_see_what_the_guide_says() -> None:
    found = {}
    for pod in documents(ROOT / "deploy" / "scheduling-map" / "webhook-test.yaml"):
        validate(pod, "1.36")
        verdict = injection(PodReview(Operation.CREATE, pod), InjectionRules())
        assert isinstance(verdict, Patched), verdict
        notes = verdict.pod["metadata"]["annotations"]
        found[pod["metadata"]["name"]] = notes["gpu-dev/map-node"], notes["gpu-dev/map-devices"]
    assert found == {
        "webhook-test-0": ("node1", "0,1"),
        "webhook-test-1": ("node2", "2"),
        "webhook-test-2": ("node3", "0,1,2"),
    }


@pytest.mark.parametrize("guide", GUIDES)
def test_every_file_that_a_guide_names_is_there(guide: str) -> None:
    text = (ROOT / "docs" / "guides" / guide).read_text()
    named = {path.rstrip("./") for path in re.findall(r"(?<![\w/])(?:deploy|charts|docs|tests)/[\w./-]+", text)}
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_values_of_the_guide_install_the_chart() -> None:
    guide = (ROOT / "docs" / "guides" / "enforcing-bookings.md").read_text()
    (values,) = re.findall(r"```yaml\n# my-values.yaml\n(.*?)```", guide, re.DOTALL)
    objects = render("gpu-booking", read_yaml(values), namespace="gpu-booking")
    check_objects(objects, "1.36")
    (webhook,) = one(objects, "MutatingWebhookConfiguration")["webhooks"]
    assert f'admission webhook "{webhook["name"]}" denied' in guide
