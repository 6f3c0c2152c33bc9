"""Which jobs `scancel` cancels, for a user who sees the jobs of all users."""

from collections.abc import Collection, Iterator

import msgspec
import pytest

from gpu_dev.errors import ApiError, NoSuchObjectError
from gpu_dev.slurm import scancel
from gpu_dev.slurm.saying import RefusedError
from gpu_dev.wire.base import Problem
from gpu_dev.wire.jobs import Job
from gpu_dev.wire.people import UserOut
from reservation_core.domain.statuses import JobStatus, Role
from tests.unit.gpu_dev.examples import NOON, job_json

_JOB = msgspec.json.decode(job_json(), type=Job)
JOBS = {
    job.id: job
    for job in (
        msgspec.structs.replace(_JOB, id=f"job-0000000{number}", user=user, name=name, status=status)
        for number, (user, name, status) in enumerate(
            [
                ("root", "a", JobStatus.RUNNING),
                ("root", "b", JobStatus.QUEUED),
                ("ann", "a", JobStatus.RUNNING),
                ("ann", "b", JobStatus.QUEUED),
                ("root", "a", JobStatus.SUCCEEDED),
            ],
            1,
        )
    )
}


class Administrator:
    """A client that notes which jobs it cancels.

    `started_after_list` start once they are listed, `started_after_read` once they are read by themselves.
    """

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.started_after_list: set[str] = set()
        self.started_after_read: set[str] = set()
        self.reads = 0

    def __enter__(self) -> "Administrator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def me(self) -> UserOut:
        return UserOut(name="root", role=Role.ADMIN, created_at=NOON, disabled_at=None)

    def jobs(self, statuses: Collection[JobStatus] = (), *, user: str | None = None) -> Iterator[Job]:
        return (job for job in JOBS.values() if job.status in statuses and user in (None, job.user))

    def job_with_etag(self, job_id: str) -> tuple[Job, str]:
        if job_id not in JOBS:
            raise NoSuchObjectError("There is none.")
        self.reads += 1
        job = JOBS[job_id]
        if job_id in self.started_after_list or (self.reads > 1 and job_id in self.started_after_read):
            return msgspec.structs.replace(job, status=JobStatus.RUNNING), '"2"'
        return job, '"1"'

    def cancel(self, job_id: str, *, if_match: str | None = None) -> Job:
        if job_id in self.started_after_read and if_match == '"1"':
            raise ApiError(Problem(type="t", title="t", status=412, detail="It has changed."))
        self.cancelled.append(job_id)
        return JOBS[job_id]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Administrator:
    client = Administrator()
    monkeypatch.setattr("gpu_dev.session.client_of", lambda _: client)
    monkeypatch.setenv("GPU_DEV_TOKEN", "t")
    return client


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("job-00000001", [1]),
        ("job-00000001 job-00000003", [1, 3]),
        ("job-00000001,job-00000003 --me", [1]),
        ("--user=ann job-00000001 job-00000003", [3]),
        ("--me", [1, 2]),
        ("-u ann", [3, 4]),
        ("--name=a", [1]),
        ("--jobname=b", [2]),
        ("-t PENDING --me", [2]),
        ("--state=r -u ann", [3]),
        ("-n a job-00000002 job-00000003", [3]),
    ],
)
def test_only_what_is_named_is_cancelled(client: Administrator, words: str, numbers: list[int]) -> None:
    assert scancel.main(words.split()) == 0
    assert client.cancelled == [f"job-0000000{number}" for number in numbers]


def test_an_element_is_named_as_in_slurm(client: Administrator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JOBS, "job-00000002.7", msgspec.structs.replace(JOBS["job-00000002"], id="job-00000002.7"))
    assert scancel.main(["job-00000002_7"]) == 0
    assert client.cancelled == ["job-00000002.7"]


def test_what_is_no_element_is_named_as_it_was_typed(client: Administrator, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RefusedError):
        scancel.main(["my-job-00000002_7"])
    assert "my-job-00000002_7" in capsys.readouterr().err
    assert client.cancelled == []


@pytest.mark.parametrize(
    "words", ["", "1", "job-00000001 2", "00000001", "-t DONE --me", "job-00000001 -s USR1", "-i -u ann"]
)
def test_nothing_is_cancelled_where_a_word_is_wrong(client: Administrator, words: str) -> None:
    with pytest.raises(RefusedError):
        scancel.main(words.split())
    assert client.cancelled == []


def test_others_are_cancelled_where_one_is_missing(client: Administrator, capsys: pytest.CaptureFixture[str]) -> None:
    assert scancel.main(["-Q", "job-00000009", "job-00000002", "--name=b"]) == 3
    assert client.cancelled == ["job-00000002"]
    assert capsys.readouterr().err == "scancel: error: job-00000009: There is none.\n"


@pytest.mark.parametrize("moment", ["started_after_list", "started_after_read"])
@pytest.mark.parametrize(
    ("words", "numbers"), [("--state=PENDING -u ann", []), ("-t PD job-00000004", []), ("-u ann --name=b", [4])]
)
def test_a_job_that_starts_meanwhile_is_no_waiting_job(
    client: Administrator, moment: str, words: str, numbers: list[int]
) -> None:
    getattr(client, moment).add("job-00000004")
    assert scancel.main(words.split()) == 0
    assert client.cancelled == [f"job-0000000{number}" for number in numbers]


def test_a_job_that_changes_again_and_again_is_named(
    client: Administrator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.started_after_read.add("job-00000002")
    monkeypatch.setattr(client, "job_with_etag", lambda job_id: (JOBS[job_id], '"1"'))
    assert scancel.main(["-t", "PD", "--me"]) == 4
    assert client.cancelled == []
    assert capsys.readouterr().err == "scancel: error: job-00000002: It has changed.\n"
