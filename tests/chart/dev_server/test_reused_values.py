"""An upgrade with `--reuse-values`: the values of an older chart lack what is new in values.yaml."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.chart.dev_server.dev_server_values import ALL_ON, over
from tests.chart.plain_manifests import defaults_file, defaults_of, users_of_the_library
from tests.chart.rendering import CHARTS, JsonObject, render
from tests.chart.tried_values import ADMISSION, BOOKING, GIVEN, SCHEDULER
from tests.read_yaml import read_yaml

BARE: dict[str, dict[str, Any]] = {"gpu-admission": {}, "gpu-booking": GIVEN, "gpu-dev-server": {}, "gpu-scheduler": {}}
ALL: dict[str, dict[str, Any]] = {
    "gpu-admission": ADMISSION["all on"],
    "gpu-booking": BOOKING["all on"],
    "gpu-dev-server": ALL_ON,
    "gpu-scheduler": SCHEDULER["all on"],
}


def defaults(chart: str) -> dict[str, Any]:
    values = read_yaml((CHARTS / chart / "values.yaml").read_text())
    assert isinstance(values, dict)
    return values


def without(values: dict[str, Any], gone: Callable[[int, Any], bool], depth: int = 1) -> dict[str, Any]:
    """Values that take others away: to a template, null is a value that is not there."""
    taken: dict[str, Any] = {}
    for name, value in values.items():
        if gone(depth, value):
            taken[name] = None
        elif isinstance(value, dict) and name != "configuration":  # the lines of postgresql.conf are the user's
            taken[name] = without(value, gone, depth + 1)
    return taken


def told(documents: list[JsonObject]) -> list[JsonObject]:
    """The documents without what is made by chance."""
    return [document for document in documents if document["kind"] not in ("Secret", "MutatingWebhookConfiguration")]


@pytest.mark.parametrize("chart", BARE)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_a_map_that_the_values_lack_fails_no_template(chart: str, depth: int) -> None:
    """Whatever a release has set in it; and where it has set nothing, it is as by default."""
    old = without(defaults(chart), lambda at, value: at == depth and isinstance(value, dict))
    documents = render(chart, over(old, BARE[chart]), upgrade=True)
    if depth == 1:
        assert told(documents) == told(render(chart, BARE[chart], upgrade=True))
    render(chart, over(old, ALL[chart]), upgrade=True)


@pytest.mark.parametrize("chart", BARE)
def test_numbers_switches_and_lists_that_the_values_lack_are_the_defaults(chart: str) -> None:
    old = without(defaults(chart), lambda at, value: at > 1 and isinstance(value, int | list))
    assert told(render(chart, over(old, ALL[chart]))) == told(render(chart, ALL[chart]))


def test_what_a_user_has_taken_away_by_null_stays_away() -> None:
    agent: dict[str, Any] = {"enabled": True, "nodeSelector": None, "runtimeClassName": None, "resources": None}
    documents = render("gpu-dev-server", {"nodeAgent": agent, "storage": {"class": None}})
    (pod,) = [document["spec"]["template"]["spec"] for document in documents if document["kind"] == "DaemonSet"]
    assert {"nodeSelector", "runtimeClassName"}.isdisjoint(pod)
    assert pod["containers"][0]["resources"] is None
    claims = [document["spec"] for document in documents if document["kind"] == "PersistentVolumeClaim"]
    assert claims
    assert not [claim for claim in claims if "storageClassName" in claim]


@pytest.mark.parametrize("chart", users_of_the_library())
def test_the_defaults_that_templates_read_are_those_of_the_values(chart: str) -> None:
    assert defaults_file(chart).read_text() == defaults_of(chart), "run `make manifests`"
