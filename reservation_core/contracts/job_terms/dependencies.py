"""Jobs that a job waits for."""

from typing import Annotated

from pydantic import Field
from pydantic.functional_validators import field_validator

from reservation_core.contracts.base import Wire
from reservation_core.domain.jobs.asked_dependencies import Dependency, DependencyState, DependencyWhen
from reservation_core.domain.request_terms import array_of
from reservation_core.domain.statuses import JobStatus


class JobDependency(Wire):
    """A job that a job waits for: until that job has succeeded, ended, failed, or started."""

    job: Annotated[str, Field(strict=True, pattern=r"^job-[0-9a-z]{1,32}$", description="The id of a job of yours.")]
    when: Annotated[
        DependencyWhen,
        Field(
            description="`ended` is any end, `failed` any end but success. Where it can't happen, the job is cancelled."
        ),
    ] = DependencyWhen.SUCCEEDED

    @field_validator("job", mode="before")
    @classmethod
    def _check_element(cls, value: object) -> object:
        if isinstance(value, str) and (named := array_of(value)) is not None:
            raise ValueError(f"can't wait for one element of an array: wait for all of them, {named[0]}")
        return value

    @property
    def asked(self) -> Dependency:
        return Dependency(self.job, self.when)


class JobDependencyOut(Wire):
    """A job that a job waits for, with that job's status."""

    job: str
    when: DependencyWhen
    status: JobStatus
    state: Annotated[
        DependencyState,
        Field(description="`open`: it may still happen; `met`: it has happened; `impossible`: it never will."),
    ]


class AskedDependency(Wire):
    """A job that a job was asked to wait for, and how far that job has to be."""

    job: str
    when: DependencyWhen
