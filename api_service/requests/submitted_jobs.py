"""A submitted job before it is stored: what refuses it without a look at the queue."""

from datetime import datetime

from api_service.requests.workloads import has_disks, refusals_of, refuse_disks, refuse_files
from api_service.services import Services
from reservation_core.contracts.job_files.synced import JobSyncAsked
from reservation_core.contracts.job_terms.disks import JobDisk
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.disks.disk_uses import HOME, HOME_PATH, with_home
from reservation_core.domain.errors import (
    DiskInUseError,
    DomainError,
    LimitExceededError,
    NoDisksError,
    NoFilesError,
    UnknownDiskError,
    UnknownFolderError,
    UnknownJobError,
    UnknownSecretError,
)
from reservation_core.domain.jobs.dependencies import KnownDependency
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.ports.jobs.reservations import NewReservation
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.disks.disks import find_disks
from reservation_core.usecases.jobs.dependencies import known_dependencies
from reservation_core.usecases.jobs.job_files import use_folder
from reservation_core.usecases.jobs.submit import other_than_booked, prepare, project_within
from reservation_core.usecases.people.user_secrets import check_secrets


async def prepared(body: JobSubmit, caller: Principal, services: Services, now: datetime) -> NewReservation:
    """The job that is to be stored. Raises DomainError for what is refused without a look at the queue."""
    policy = services.policy.known or await services.policy.current()
    body, has_home = await _with_home(body, caller, services)
    found = await refusals_of(body.workload.image, body.gpu_type, caller, services)
    if body.secrets:
        found += await _unknown_secrets(body, caller, services)
    if body.disks:
        named = body.model_copy(update={"disks": body.disks[:-1]}) if has_home else body
        unusable = await _unusable_disks(named, caller, services) if named.disks else []
        if has_home and not unusable:
            unusable = [_said_of_home(error) for error in await _unusable_disks(body, caller, services)]
        found += unusable
    if body.sync is not None:
        found += await _unknown_files(body, body.sync, caller, services, now)
    after: tuple[KnownDependency, ...] = ()
    if body.after:
        try:
            async with services.runtime.uow(one_statement=True) as uow:
                after = await known_dependencies(uow, caller, [dependency.asked for dependency in body.after])
        except UnknownJobError as error:
            found.append(error)
    foreign = None
    if body.project is not None or body.booking_id is not None:
        body, foreign = await _with_project(body, caller, services)
    ids, longest = services.runtime.ids, services.settings.max_duration
    return prepare(
        body, caller, ids=ids, longest=longest, now=now, policy=policy, foreign=foreign, found=found, after=after
    )


async def _unknown_secrets(body: JobSubmit, caller: Principal, services: Services) -> list[DomainError]:
    async with services.runtime.uow(one_statement=True) as uow:
        try:
            await check_secrets(uow, caller.user_id, [secret.use for secret in body.secrets])
        except UnknownSecretError as error:
            return [error]
    return []


async def _unusable_disks(body: JobSubmit, caller: Principal, services: Services) -> list[DomainError]:
    try:
        refuse_disks(services.settings)
        async with services.runtime.uow() as uow:
            uses = [disk.use for disk in body.disks]
            await find_disks(uow, caller.user_id, uses, runs=bool(body.workload.command))
    except (NoDisksError, UnknownDiskError, DiskInUseError, LimitExceededError) as error:
        return [error]
    return []


async def _unknown_files(
    body: JobSubmit, asked: JobSyncAsked, caller: Principal, services: Services, now: datetime
) -> list[DomainError]:
    try:
        refuse_files(services.settings, working_dir=body.workload.working_dir)
        if asked.folder is not None:
            async with services.runtime.uow() as uow:
                await use_folder(uow, caller.user_id, asked.folder, now)
    except (NoFilesError, UnknownFolderError) as error:
        return [error]
    return []


async def _with_project(body: JobSubmit, caller: Principal, services: Services) -> tuple[JobSubmit, RuleBreach | None]:
    """The request with its booking's project unless it names one, and what a project breaks that is wrong for it.

    The transaction that stores the job checks this again.
    """
    if body.booking_id is not None:
        project = await project_within(services.runtime.uow, caller, body.booking_id)
        named = body if body.project is not None else body.model_copy(update={"project": project})
        return named, other_than_booked(named, project)
    if body.project is None:
        return body, None
    return body, await services.policy.foreign_project(body.project, caller.user_id)


async def _with_home(body: JobSubmit, caller: Principal, services: Services) -> tuple[JobSubmit, bool]:
    """The request of a session with its owner's disk `home`, and whether that is added.

    Jobs with a command have the disks that they name, and no others.
    """
    if body.workload.command or body.no_home or not has_disks(services.settings):
        return body, False
    paths = [use.path for use in (secret.use for secret in body.secrets) if use.path is not None]
    uses = with_home([disk.use for disk in body.disks], paths)
    if len(uses) == len(body.disks):
        return body, False
    async with services.runtime.uow(one_statement=True) as uow:
        if await uow.disks.named(caller.user_id, HOME) is None:
            return body, False
    return body.model_copy(update={"disks": [*body.disks, JobDisk(name=HOME)]}), True


def _said_of_home(error: DomainError) -> DomainError:
    return type(error)(
        f"{error.detail} A session has your disk {HOME} at {HOME_PATH}; `gpu-dev dev --no-home` starts one without it."
    )
