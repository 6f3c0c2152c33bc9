"""The lines of a watch, however its bytes arrive, and what becomes of a watch that can't go on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.api_server import object_watch
from reservation_core.adapters.kubernetes.api_server.list_and_watch import LineSplitter
from reservation_core.adapters.kubernetes.api_server.object_watch import ObjectWatch
from reservation_core.adapters.kubernetes.jobs.pod_watch import PodWatch
from reservation_core.adapters.kubernetes.pods.marks import attempt_labels
from reservation_core.domain.model import PodName
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.waiting import PATIENCE_S

NAME = PodName("job-a", 1, 0)
POD = {"metadata": {"name": str(NAME), "uid": "1", "labels": {**attempt_labels(NAME), "gpu-dev/rank": "0"}}}


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.integers(1, 30))
def test_lines_come_whole_and_an_unfinished_one_not_at_all(lines: list[bytes], size: int) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b'{"type": "MODI'
    splitter, found = LineSplitter(), []
    for at in range(0, len(stream), size):
        found += splitter.feed(stream[at : at + size])
    assert found == [line for line in lines if line.strip()]


@pytest.mark.parametrize("line", [b"{", b"\xff", b"[" * 100_000], ids=["cut", "no text", "deep"])
def test_a_line_that_is_no_json_is_a_server_that_can_not_be_asked(line: bytes) -> None:
    with pytest.raises(ClusterUnavailableError, match="not JSON"):
        ObjectWatch(None, "/pods")._event(line)


async def test_a_place_that_no_watch_can_go_on_from_is_given_up_for_a_new_list(monkeypatch) -> None:
    """An API server whose database was restored is asked for a version that it will not reach for long."""
    monkeypatch.setattr(object_watch, "_FIRST_PAUSE_S", 0.0)
    watched: list[object] = []

    class Restored:
        closed = False

        async def request(self, *_: object, **__: object) -> dict[str, Any]:
            return {"items": [], "metadata": {"resourceVersion": "7" if watched else "1000"}}

        @asynccontextmanager
        async def stream(self, _path: str, *, query: Any, idle_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
            watched.append(query["resourceVersion"])
            if query["resourceVersion"] == "1000":
                raise ClusterUnavailableError("504 Timeout: Too large resource version: 1000, current: 7")

            async def chunks() -> AsyncIterator[bytes]:
                yield json.dumps({"type": "ADDED", "object": POD}).encode() + b"\n"

            yield chunks()

    watch = PodWatch(Restored(), "/pods")  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE_S), aclosing(watch.statuses()) as statuses:
        assert (await anext(statuses)).name == NAME
    assert watched[-1] == "7"
