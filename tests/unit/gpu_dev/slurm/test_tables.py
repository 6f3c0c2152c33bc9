"""Jobs and nodes in the terms of `squeue` and `sinfo`, and the options of these commands."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gpu_dev.slurm.formats import read_format, table_lines
from gpu_dev.slurm.job_lines import job_fields, state_of
from gpu_dev.slurm.reading.list_options import SCANCEL, SINFO, SQUEUE
from gpu_dev.slurm.reading.options import Option, Takes, Treatment
from gpu_dev.slurm.reading.words import read_words
from gpu_dev.slurm.saying import remarks_of
from gpu_dev.slurm.sinfo import FIELDS, Place
from gpu_dev.wire.base import ReasonOut
from gpu_dev.wire.jobs import AllocationOut, Job
from gpu_dev.wire.nodes import NodeOut
from reservation_core.domain.statuses import JobStatus, ReasonCode
from tests.unit.gpu_dev.examples import job_json

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


def a_job(**more: Any) -> Job:
    return msgspec.structs.replace(msgspec.json.decode(job_json(), type=Job), **more)


def line(job: Job, form: str) -> str:
    columns, after = read_format(form, job_fields(NOW))
    return table_lines([job], columns, after, titles=False).rstrip("\n")


def test_a_running_job() -> None:
    running = a_job(
        name="train", user="ada", status=JobStatus.RUNNING, gpus=2, gpu_type="h100", nodes=2, project="vision",
        duration=timedelta(days=1), started_at=NOW - timedelta(hours=1, seconds=5), ends_at=NOW,
        allocations=[AllocationOut(node=node, gpu_indices=[0, 1], gpu_uuids=[], pod="p") for node in ("n1", "n2")],
    )  # fmt: skip
    assert line(running, "%j %u %t %T %M %l %L %D %R %P %a %b") == (
        "train ada R RUNNING 1:00:05 1-00:00:00 22:59:55 2 n1,n2 h100 vision gres/gpu:h100:2"
    )


def test_a_waiting_job() -> None:
    waiting = a_job(
        name=None, status=JobStatus.QUEUED, gpus=4, gpu_type=None, nodes=1, duration=timedelta(minutes=5), priority=-5,
        started_at=None, allocations=[], estimated_start_at=None, estimated_start=None, project=None,
        reason=ReasonOut(code=ReasonCode.WAITING_FOR_GPUS, detail="Later."),
    )  # fmt: skip
    assert line(waiting, "%j|%t|%M|%L|%R|%N|%S|%Q|%P|%a|%b") == (
        "|PD|0:00|5:00|(waiting_for_gpus)||N/A|-5|any||gres/gpu:4"
    )


def test_each_state_has_a_name_of_its_own() -> None:
    assert len({name for status in JobStatus for name in state_of(status)}) == 2 * len(JobStatus)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"free": 8}, "idle"),
        ({"free": 3}, "mix"),
        ({"free": 0}, "alloc"),
        ({"free": 0, "ready": False}, "down"),
        ({"free": 8, "fenced_at": NOW}, "down"),
        ({"free": 8, "cordoned_at": NOW}, "drain"),
        ({"free": 3, "schedulable": False}, "drng"),
    ],
)
def test_the_state_of_a_node(changes: dict[str, Any], state: str) -> None:
    assert Place("h100", a_node(**changes)).state == state


def a_node(**changes: Any) -> NodeOut:
    fields = {
        "name": "n1", "ready": True, "schedulable": True, "detail": None, "gpu_types": ["h100"], "gpus": 8, "free": 8,
        "last_seen_at": NOW, "labels": {},
    }  # fmt: skip
    return NodeOut(**{**fields, **changes})


def test_the_columns_of_nodes() -> None:
    places = [Place("h100", a_node(free=free, name=f"n{free}")) for free in (8, 3, 0)]
    columns, after = read_format("%P %a %l %D %N %G %A %F", FIELDS)
    assert table_lines([places], columns, after, titles=False) == (
        "h100 up 90-00:00:00 3 n8,n3,n0 gpu:h100:8 2/1 2/1/0/3\n"
    )


@pytest.mark.parametrize("table", [SQUEUE, SCANCEL, SINFO], ids=["squeue", "scancel", "sinfo"])
def test_every_option_is_honoured_named_in_a_warning_or_refused(table: Mapping[str, Option]) -> None:
    letters = [option.letter for option in table.values() if option.letter]
    assert len(letters) == len({*letters})
    for option in table.values():
        typed = read_words([option.flag, *(["1"] if option.takes is Takes.VALUE else [])], table, mixed=True)
        assert not typed.operands
        refusals, warnings = remarks_of(typed)
        found = (bool(warnings), bool(refusals))
        assert found == (option.treatment is Treatment.PASSED_OVER, option.treatment is Treatment.REFUSED), option
