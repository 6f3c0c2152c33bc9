"""Images by their digest: each chart takes one for each image that it names, and pods name it."""

import copy
from typing import Any

import helm_python
import pytest

from tests.chart.dev_server.dev_server_values import ALL_ON
from tests.chart.hardening import pod_specs
from tests.chart.rendering import CHARTS, render
from tests.chart.tried_values import ADMISSION, BOOKING, SCHEDULER
from tests.read_yaml import read_yaml

DIGEST = "sha256:" + "0123456789abcdef" * 4
VALUES = {
    "gpu-admission": ADMISSION["all on"],
    "gpu-booking": BOOKING["all on"],
    "gpu-scheduler": SCHEDULER["all on"],
    "gpu-dev-server": ALL_ON,
}


def images_of(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Every image that values name, wherever it stands."""
    own = [values] if "repository" in values else []
    return own + [image for nested in values.values() if isinstance(nested, dict) for image in images_of(nested)]


def filled(chart: str, **image: str) -> dict[str, Any]:
    """The defaults of a chart, with this said of every image."""
    values: dict[str, Any] = read_yaml((CHARTS / chart / "values.yaml").read_text())
    images = images_of(values)
    assert images
    for reference in images:
        assert {"repository", "tag", "digest"} <= reference.keys()
        reference.update(image)
    return values


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(below)
    for name, value in above.items():
        there = result.get(name)
        result[name] = merged(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return result


@pytest.mark.parametrize("chart", VALUES)
def test_pods_name_the_digests_that_are_given(chart: str) -> None:
    documents = render(chart, merged(filled(chart, digest=DIGEST), VALUES[chart]))
    found = [
        container["image"] for spec in pod_specs(documents) for kind in ("initContainers", "containers")
        for container in spec.get(kind, ())
    ]  # fmt: skip
    whole = {"aws:1"}  # of the upload of backups: one value, which may hold a digest itself
    assert found
    assert [image for image in found if not image.endswith(f"@{DIGEST}") and image not in whole] == []


@pytest.mark.parametrize("chart", VALUES)
def test_a_digest_in_the_repository_is_refused(chart: str) -> None:
    """A tag would be put behind it."""
    with pytest.raises(helm_python.HelmError, match="repository"):
        render(chart, merged(VALUES[chart], filled(chart, repository=f"registry.test/a@{DIGEST}")))


def test_an_image_of_its_own_does_not_take_anothers_digest() -> None:
    values = {"image": {"digest": DIGEST}, "webhook": {"image": {"tag": "2"}}}
    images = {
        container["name"]: container["image"]
        for spec in pod_specs(render("gpu-scheduler", values))
        for container in spec["containers"]
        if "image" in container
    }
    assert images["scheduler"].endswith(f"@{DIGEST}")
    assert images["webhook"] == "gpu-scheduler:2"
    agent = {
        "nodeAgent": {"enabled": True, "image": {"tag": "3"}},
        "availabilityUpdater": {"image": {"digest": DIGEST}},
    }
    (image,) = [
        container["image"]
        for document in render("gpu-dev-server", agent)
        if document["kind"] == "DaemonSet"
        for container in document["spec"]["template"]["spec"]["containers"]
    ]
    assert image == "availability-updater:3"
