"""The use of GPUs over REST."""

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

from gpu_dev.calls.calls import Calls, given
from gpu_dev.wire.base import Page
from gpu_dev.wire.nodes import GpuNowOut, UseOut


class UseCalls(Calls):
    """Graphs of utilisation, memory, power and errors."""

    def of_job(self, job_id: str, *, since: str | None = None, step: timedelta | None = None) -> UseOut:
        """The use of a job's GPUs while it had them; `since` is a time in RFC 3339."""
        return self._use(f"/v1/jobs/{quote(job_id, safe='')}", since, step)

    def csv_of_job(self, job_id: str, *, since: str | None = None, step: timedelta | None = None) -> str:
        """The same as the server's CSV."""
        params = _params(since, step) | {"format": "csv"}
        return self._exchange.send("GET", f"/v1/jobs/{quote(job_id, safe='')}/metrics", params=params).text

    def of_node(self, node: str, *, since: str | None = None, step: timedelta | None = None) -> UseOut:
        """The use of a node's GPUs; by default in the last hour."""
        return self._use(f"/v1/nodes/{quote(node, safe='')}", since, step)

    def now(self) -> Iterator[GpuNowOut]:
        """Every GPU by node and index, with its newest sample."""
        return self._items(Page[GpuNowOut], "/v1/gpus/use")

    def _use(self, path: str, since: str | None, step: timedelta | None) -> UseOut:
        return self._get(UseOut, f"{path}/metrics", _params(since, step))


def _params(since: str | None, step: timedelta | None) -> dict[str, object]:
    return given(from_=since, step=None if step is None else int(step.total_seconds()))
