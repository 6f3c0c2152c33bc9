"""Log lines name the trace of the job that they are about."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from reservation_core.ports.traces import KnownTraces, known_traces
from reservation_core.runtime.processes.logs import configure
from reservation_core.runtime.settings.components import CommonSettings

ID = "0af7651916cd43dd8448eb211c80319c"
TRACE = f"00-{ID}-b7ad6b7169203331-01"


class Kept(logging.Handler):
    """Keeps formatted lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(self.format(record))


@pytest.fixture
def kept() -> Iterator[Kept]:
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = [*root.handlers], root.level
    handler = Kept()
    configure(CommonSettings(log_json=True), [handler])
    yield handler
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


@pytest.mark.parametrize(
    ("fields", "trace_id"),
    [
        ({"job": "job-a"}, ID),
        ({"job": "job-a.3"}, None),
        ({"pod": "job-a-2-0"}, ID),
        ({"pod": "somebody-elses"}, None),
        ({"pod": 7}, None),
        ({"job": None}, None),
        ({}, None),
        ({"job": "job-a", "trace_id": "another"}, "another"),
    ],
)
def test_a_line_that_names_a_job_or_its_pod_has_the_trace(
    kept: Kept, fields: dict[str, object], trace_id: str | None
) -> None:
    known_traces.note("job-a", TRACE)
    structlog.get_logger().warning("it happened", **fields)
    assert json.loads(kept.lines[-1]).get("trace_id") == trace_id


def test_a_line_within_the_work_for_a_job_has_the_trace(kept: Kept) -> None:
    known_traces.note("job-a", TRACE)
    with structlog.contextvars.bound_contextvars(job="job-a"):
        structlog.get_logger().warning("it happened")
        logging.getLogger("a library").warning("it says so, too")
    assert [json.loads(line)["trace_id"] for line in kept.lines] == [ID, ID]


def test_the_trace_of_the_row_that_was_read_longest_ago_is_forgotten() -> None:
    known = KnownTraces(most=2)
    for job in ("a", "b", "a", "c"):
        known.note(job, TRACE)
    assert [known.id_of(job) for job in "abc"] == [ID, None, ID]
