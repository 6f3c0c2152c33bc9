"""Which jobs `squeue` lists, for a user who sees the jobs of all users."""

from collections.abc import Collection, Iterator

import msgspec
import pytest

from gpu_dev.errors import NoSuchObjectError
from gpu_dev.slurm import squeue
from gpu_dev.wire.jobs import Job
from gpu_dev.wire.people import UserOut
from reservation_core.domain.statuses import JobStatus, Role
from tests.unit.gpu_dev.examples import NOON, job_json

_JOB = msgspec.json.decode(job_json(), type=Job)
JOBS = {
    job.id: job
    for job in (
        msgspec.structs.replace(_JOB, id=f"job-0000000{number}", user=user, status=status)
        for number, (user, status) in enumerate(
            [
                ("root", JobStatus.QUEUED),
                ("root", JobStatus.RUNNING),
                ("root", JobStatus.SUCCEEDED),
                ("ann", JobStatus.RUNNING),
                ("ann", JobStatus.CANCELLED),
            ],
            1,
        )
    )
}


class Administrator:
    """A client that has these jobs."""

    def __enter__(self) -> "Administrator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def me(self) -> UserOut:
        return UserOut(name="root", role=Role.ADMIN, created_at=NOON, disabled_at=None)

    def jobs(
        self, statuses: Collection[JobStatus] = (), *, user: str | None = None, shared: bool = False
    ) -> Iterator[Job]:
        return (job for job in JOBS.values() if not shared and job.status in statuses and user in (None, job.user))

    def job(self, job_id: str) -> Job:
        if job_id not in JOBS:
            raise NoSuchObjectError("There is none.")
        return JOBS[job_id]


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_dev.session.client_of", lambda _: Administrator())
    monkeypatch.setenv("GPU_DEV_TOKEN", "t")


ALL = "job-00000001,job-00000002,job-00000003,job-00000004,job-00000005"


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("", [1, 2, 4]),
        ("--me", [1, 2]),
        ("-t CD,CA", [3, 5]),
        ("-j job-00000003", []),
        (f"-j {ALL}", [1, 2, 4]),
        (f"-j {ALL} -t all", [1, 2, 3, 4, 5]),
        (f"-j {ALL} --me", [1, 2]),
        (f"-j {ALL} --me -t CD", [3]),
        (f"-j {ALL} -u ann --states=RUNNING,CANCELLED", [4, 5]),
        (f"-j {ALL} --start", [1]),
    ],
)
def test_each_option_narrows_the_list(capsys: pytest.CaptureFixture[str], words: str, numbers: list[int]) -> None:
    assert squeue.main(["-h", "-o", "%i", *words.split()]) == 0
    assert capsys.readouterr().out.split() == [f"job-0000000{number}" for number in numbers]


def test_a_job_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NoSuchObjectError):
        squeue.main(["-j", "job-00000009"])
