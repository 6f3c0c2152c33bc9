"""Traces as rows of a table."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from reservation_core.domain.simulation.trace_rows import TraceRow, read_row
from reservation_core.domain.simulation.traces import cluster, jobs_of

HOUR = timedelta(hours=1)
AT = datetime(2017, 9, 21, 17, tzinfo=UTC)


def row(**values: str) -> dict[str, str | None]:
    return {"submitted_at": "2017-09-21T17:00:00Z", "duration_s": "60", "gpus": "1", **values}


def test_a_row_with_all_columns() -> None:
    read = read_row(1, row(asked_s="120", user="ann", project="lab", gpu_type="h100", priority="5", gpus="4"))
    assert read == TraceRow(AT, timedelta(minutes=1), 4, timedelta(minutes=2), "ann", "lab", "h100", 5)


def test_a_time_without_a_zone_is_utc() -> None:
    assert read_row(1, row(submitted_at="2017-09-21 17:00:00")).submitted_at == AT


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gpus": "0"}, "gpus: '0' is not a whole number, 1 or more."),
        ({"gpus": "many"}, "gpus: 'many' is not a whole number, 1 or more."),
        ({"gpus": "1.5"}, "gpus: '1.5' is not a whole number, 1 or more."),
        ({"duration_s": "-1"}, "duration_s: '-1' is not a number of seconds, 0 or more, such as 3600."),
        ({"duration_s": "1e300"}, "duration_s: '1e300' is not a number of seconds, 0 or more, such as 3600."),
        ({"duration_s": "nan"}, "duration_s: 'nan' is not a number of seconds, 0 or more, such as 3600."),
        (
            {"duration_s": " "},
            "duration_s: nothing is given where there must be a number of seconds, 0 or more, such as 3600.",
        ),
        ({"submitted_at": "yesterday"}, "submitted_at: 'yesterday' is not a time, such as 2026-11-26T14:00:00Z."),
        ({"asked_s": "2h"}, "asked_s: '2h' is not a number of seconds, such as 7200, or empty."),
        ({"priority": "high"}, "priority: 'high' is not a whole number, such as 0, or empty."),
        ({"gpus": "x" * 50}, f"gpus: '{'x' * 40}' is not a whole number, 1 or more."),
    ],
)
def test_what_a_cell_can_not_say(values: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"Line 7, column {words}") + "$"):
        read_row(7, row(**values))


def test_cells_that_may_be_empty() -> None:
    assert read_row(1, row(asked_s=" ", priority="", user="")) == read_row(1, row())


def test_a_column_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="The first line has no column gpus; it needs submitted_at, duration_s, gpus"):
        read_row(1, {"submitted_at": "2017-09-21", "duration_s": "1"})


def test_jobs_come_in_order_and_more_gpus_than_a_node_has_are_spread_evenly() -> None:
    rows = [TraceRow(AT + HOUR, HOUR, 12, user="bob"), TraceRow(AT, 3 * HOUR, 2, asked=HOUR, user="ann")]
    first, second = jobs_of(rows, 8, lambda job: 2 * job.ran)
    assert (first.job.gpus, first.job.nodes, first.job.length) == (2, 1, 3 * HOUR)
    assert (second.job.gpus, second.job.nodes, second.job.length) == (6, 2, 2 * HOUR)
    assert first.job.owner != second.job.owner


def test_a_cluster_has_whole_nodes_and_a_rest() -> None:
    nodes = cluster(44, 8)
    assert [len(node.gpus) for node in nodes] == [8, 8, 8, 8, 8, 4]
    assert len({gpu.id for node in nodes for gpu in node.gpus}) == 44
