"""Events: in order, bounded, never in anybody's way, and such that the API takes them."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from reservation_core.adapters.kubernetes.api_server.errors import api_error
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter, Regarding
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.clocks import SettableClock
from tests.virtual_time import run_virtually

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass
class Api:
    """See Transport.request: takes Events, or refuses those whose note says so."""

    bodies: list[Mapping[str, Any]] = field(default_factory=list)

    async def request(self, method: str, path: str, *, body: Mapping[str, Any]) -> dict[str, Any]:
        assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events")
        await asyncio.sleep(0)
        match body["note"]:
            case "refused":
                raise api_error(403, b"{}")
            case "away":
                raise ClusterUnavailableError("away")
        self.bodies.append(body)
        return {}


def written(notes: list[str], for_s: float, name: str = "p-0") -> tuple[list[Mapping[str, Any]], int]:
    """What of these was written after so many seconds, and how many were left out."""

    async def work() -> tuple[list[Mapping[str, Any]], int]:
        api = Api()
        writer = EventWriter(cast("Any", api), SettableClock(), "gpu-scheduler", "i" * 500, per_s=10)
        for note in notes:
            writer.add(Regarding("ns", name, "uid"), "FailedScheduling", note, action="Binding", warning=True)
        task = asyncio.create_task(writer.run())
        await asyncio.sleep(for_s)
        task.cancel()
        await asyncio.wait([task])
        return api.bodies, writer.left_out

    return run_virtually(work())


def test_in_order_and_no_more_a_second_than_was_said() -> None:
    bodies, left_out = written([str(number) for number in range(100)], 5.05)
    assert [body["note"] for body in bodies] == [str(number) for number in range(51)]
    assert left_out == 0


def test_the_oldest_are_left_out_and_counted() -> None:
    bodies, left_out = written([str(number) for number in range(2500)], 1000)
    assert left_out == 500
    assert [body["note"] for body in bodies] == [str(number) for number in range(500, 2500)]


@pytest.mark.parametrize("problem", ["refused", "away"])
def test_one_that_is_not_taken_holds_nobody_up(problem: str) -> None:
    bodies, left_out = written(["one", problem, "two"], 5)
    assert ([body["note"] for body in bodies], left_out) == (["one", "two"], 1)


def test_a_note_is_cut_between_characters() -> None:
    ((body,), _) = written(["ä" * 700], 5)
    assert body["note"] == "ä" * 500
    ((body,), _) = written(["x" + "€" * 400], 5)
    assert body["note"] == "x" + "€" * 333
    assert len(body["reportingInstance"]) == 128


@pytest.mark.parametrize("name", ["p-0", "a" * 253, "a" * 199 + "-b", "a" * 199 + ".b", "a" * 197 + "-.-b"])
def test_its_name_is_one_that_the_api_takes(name: str) -> None:
    ((body,), _) = written(["x"], 5, name)
    made = body["metadata"]["name"]
    assert len(made) <= 253
    assert NAME.fullmatch(made)
