"""Disks of users, and those that a job has."""

from operator import not_
from typing import Annotated, Self

from pydantic import Field, model_validator

from reservation_core.contracts.base import Bytes, Time, UserName, Wire, with_example
from reservation_core.domain.disks.disk_life import DiskState
from reservation_core.domain.disks.disk_uses import MOST_IN_JOB, DiskUse, usual_path

DiskName = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class JobDisk(Wire):
    """A disk that a job has at `path`. Without a path it is at /disks/NAME, a disk named `home` at /home/dev."""

    name: DiskName
    path: Annotated[str, Field(strict=True, max_length=1024, pattern=r"^/")] | None = None
    read_only: Annotated[bool, Field(strict=True, description="Other jobs may write to the disk meanwhile.")] = False

    @property
    def use(self) -> DiskUse:
        return DiskUse(self.name, self.path or usual_path(self.name), self.read_only)


class JobDiskOut(Wire):
    """A disk that a job has at `path`."""

    name: str
    path: str
    read_only: bool


JobDisks = Annotated[
    list[JobDisk],
    Field(
        max_length=MOST_IN_JOB,
        default_factory=list,
        exclude_if=not_,  # a request without them is that of servers which knew none, and its hash, too
        description="Your disks that the job has from now to its end. One job at a time can write to a disk.",
    ),
]


NoHome = Annotated[
    bool,
    Field(strict=True, exclude_if=not_, description="Start a session without your disk `home`."),
]


class DiskSource(Wire):
    """What a clone begins with: what is on a disk of yours, or was on it when its snapshot was taken."""

    disk: DiskName
    snapshot: DiskName | None = None


class DiskCreate(Wire):
    """A request for a disk: an empty one of a size, or a clone of `source`, which can be larger and not smaller."""

    model_config = with_example(name="data", size="100Gi")

    name: DiskName
    size: Annotated[Bytes, Field(description="Bytes, or text such as `100Gi`. A clone needs none.")] | None = None
    source: Annotated[
        DiskSource | None,
        Field(exclude_if=not_, description="The disk or snapshot that is cloned; without it the disk is empty."),
    ] = None

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.size is None and self.source is None:
            raise ValueError("name `size`, or the `source` of a clone")
        return self


class SnapshotCreate(Wire):
    """A request for a snapshot. Without a name it has that of the time."""

    model_config = with_example(name="before-cleaning")

    name: DiskName | None = None


class DiskChange(Wire):
    """What changes of a disk."""

    model_config = with_example(size="200Gi")

    name: DiskName | None = None
    size: Annotated[Bytes, Field(description="Bytes, or text such as `200Gi`; never less than it has.")] | None = None
    owner: (
        Annotated[UserName, Field(description="The user who gets the disk. Administrators alone hand disks over.")]
        | None
    ) = None

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        if self.name is None and self.size is None and self.owner is None:
            raise ValueError("name `name`, `size` or `owner`: nothing would change")
        return self


class DiskUseOut(Wire):
    """A job that has a disk until it ends."""

    job: str
    read_only: bool


class SnapshotOut(Wire):
    """A snapshot of a disk, taken at `created_at`. It counts as `size` bytes: the size of the disk at that time.

    Once it is `ready` it can be cloned; until then `problem` says why it could not be taken yet.
    """

    name: str
    size: int
    created_at: Time
    ready: bool
    problem: str | None


class DiskOut(Wire):
    """A disk. Sizes are in bytes; `used` was on it at `measured_at`. `problem` says why it could not be made yet.

    A deleted disk can be restored until `kept_until`.
    """

    name: str
    state: DiskState
    size: int
    used: int | None
    measured_at: Time | None
    created_at: Time
    deleted_at: Time | None
    kept_until: Time | None
    problem: str | None
    jobs: list[DiskUseOut]
    snapshots: list[SnapshotOut] = Field(default_factory=list)
