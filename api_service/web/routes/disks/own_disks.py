"""The visitor's disks: listed, created, changed, deleted and restored. Administrators do that with a user's, too.

`?user=alice` names the user; without it, or with the visitor's own name, the disks are the visitor's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import Query, RestProblemError
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.job_terms.disks import DiskOut
from reservation_core.domain.disks.disk_life import DiskState
from reservation_core.domain.disks.disk_uses import MOST_SNAPSHOTS, is_disk_name
from reservation_core.domain.request_terms import size_words, written_bytes
from reservation_core.domain.time_words import rfc3339

_REFUSALS = (400, 403, 404, 409, 413, 422)
_MOST_SHOWN = 1000
_FIRST = {"name": "", "size": "100Gi"}
_UNSETTLED = {DiskState.CREATING, DiskState.RESIZING, DiskState.REMOVING}


async def disks_page(visit: Visit) -> Response:
    """List a user's disks, and the deleted ones that are still kept."""
    return await _list_page(visit, _FIRST)


async def create_disk(visit: Visit) -> Response:
    """Create a disk. A refusal is shown beside the input."""
    typed = {name: visit.form.get(name) or "" for name in _FIRST}
    try:
        check_name(typed["name"])
        disk = await visit.rest.post(DiskOut, "/v1/disks", typed)
    except RestProblemError as problem:
        return await _list_page(visit, typed, shown_refusal(problem))
    return visit.go("/disks", f"The disk {disk.name} is created. Name it in a job's form to use it.")


async def disk_page(visit: Visit) -> Response:
    """Show a disk, and a form that changes its name and size."""
    disk = await asked_disk(visit)
    return show_disk(visit, disk, fields_of(disk))


async def change_disk(visit: Visit) -> Response:
    """Rename, resize or hand over a disk. A refusal is shown beside the input."""
    disk = await asked_disk(visit)
    before = fields_of(disk) | ({"owner": asked_owner(visit)} if visit.principal.is_admin else {})
    typed = {name: visit.form.get(name) or "" for name in before}
    try:
        check_name(typed["name"])
        changed = {name: value for name, value in typed.items() if value != before[name]}
        if not changed:
            raise RestProblemError.because(422, "Nothing has changed. Type another name or a larger size.")
        address = f"/v1/disks/{disk.name}"
        after = await visit.rest.call(DiskOut, "PATCH", address, body=changed, query={"user": asked_user(visit)})
    except RestProblemError as problem:
        return show_disk(visit, disk, typed, shown_refusal(problem))
    named = disk.name if after.body.name == disk.name else f"{disk.name}, now {after.body.name},"
    owner = typed.get("owner", asked_owner(visit))
    if "owner" in changed:
        return visit.go(page_for(visit, owner, after.body.name), f"The disk {named} belongs to {owner} now.")
    place = page_for(visit, owner, after.body.name)
    return visit.go(place, f"The disk {named} has {size_words(after.body.size)}.")


async def confirm_delete(visit: Visit) -> Response:
    """Explain what deleting a disk would take away, and until when it can be restored."""
    disk = await asked_disk(visit)
    if disk.jobs:
        job = disk.jobs[0].job
        raise RestProblemError.because(
            409, f"The job {job} has the disk {disk.name}. Wait until it has ended, or cancel it first."
        )
    title = f"Delete the disk {disk.name}{_of(visit)}?"
    fields = {} if (user := asked_user(visit)) is None else {"user": user}
    back = page_for(visit, asked_owner(visit))
    return ask(visit, title, _losses(visit, disk), words="Delete it", back=back, fields=fields)


async def delete_disk(visit: Visit) -> Response:
    """Delete a disk."""
    disk = await visit.rest.call(DiskOut, "DELETE", f"/v1/disks/{_name(visit)}", query={"user": asked_user(visit)})
    return visit.go(page_for(visit, asked_owner(visit)), f"The disk {disk.body.name}{_of(visit)} is deleted.")


async def restore_disk(visit: Visit) -> Response:
    """Restore a deleted disk."""
    try:
        disk = await visit.rest.post(DiskOut, f"/v1/disks/{_name(visit)}/restore", query={"user": asked_user(visit)})
    except RestProblemError as problem:
        return await _list_page(visit, _FIRST, shown_refusal(problem))
    words = f"The disk {disk.name}{_of(visit)} is restored, with what was on it."
    return visit.go(page_for(visit, asked_owner(visit)), words)


def restorable(disks: Sequence[DiskOut], deleted: Sequence[DiskOut]) -> list[DiskOut]:
    """Of each name the disk that was deleted last: restoring a name means that one. Not what is being removed.

    A name that one of `disks` has now is not free.
    """
    taken = {disk.name for disk in disks}
    last: dict[str, DiskOut] = {}
    for disk in sorted(deleted, key=lambda disk: disk.deleted_at or disk.created_at):
        last[disk.name] = disk
    return [disk for disk in last.values() if disk.state is DiskState.DELETED and disk.name not in taken]


def _losses(visit: Visit, disk: DiskOut) -> list[str]:
    """What goes with a disk, in sentences."""
    if disk.state is DiskState.CREATING:
        return ["It is not made yet: nothing is on it."]
    kept = visit.services.settings.disks.kept
    files = "The files on it" + (f" ({size_words(disk.used)})" if disk.used else "")
    if not kept:
        return [f"{files} are removed at once, and can't be restored."]
    with_it = ["Its snapshots are deleted with it, and restored with it."] if disk.snapshots else []
    return [
        "No job can use it any more.",
        *with_it,
        f"{files} can be restored until {rfc3339(visit.now + kept)}, and are removed then for ever.",
    ]


async def _list_page(visit: Visit, typed: Mapping[str, str], problem: RestProblemError | None = None) -> Response:
    of_user: Query = {"user": asked_user(visit)}
    disks = await visit.rest.all(Page[DiskOut], "/v1/disks", of_user, at_most=_MOST_SHOWN)
    deleted = await visit.rest.all(Page[DiskOut], "/v1/disks", {"deleted": True, **of_user}, at_most=_MOST_SHOWN)
    return visit.page(
        "disks/disks.html",
        title=_title(visit),
        user=asked_user(visit),
        suffix=_suffix(visit, asked_owner(visit)),
        status=200 if problem is None else problem.status,
        disks=disks,
        deleted=deleted,
        restorable=restorable(disks, deleted),
        taken={disk.name for disk in disks},
        unsettled=any(disk.state in _UNSETTLED for disk in (*disks, *deleted)),
        bounds=visit.services.settings.disks.bounds,
        fields=typed,
        problem=problem,
    )


def show_disk(
    visit: Visit,
    disk: DiskOut,
    fields: Mapping[str, str],
    problem: RestProblemError | None = None,
    copies: Mapping[str, str] | None = None,
) -> Response:
    """A disk's page. `copies` is what was typed for a snapshot or a clone."""
    return visit.page(
        "disks/disk.html",
        title=disk.name,
        list_title=_title(visit),
        user=asked_user(visit),
        owner=fields.get("owner", asked_owner(visit)),
        suffix=_suffix(visit, asked_owner(visit)),
        status=200 if problem is None else problem.status,
        disk=disk,
        unsettled=disk.state in _UNSETTLED,
        unready=not all(snapshot.ready for snapshot in disk.snapshots),
        most_snapshots=MOST_SNAPSHOTS,
        fields=fields,
        copies={"snapshot": "", "name": "", "source": "", **(copies or {})},
        problem=problem,
    )


def shown_refusal(problem: RestProblemError) -> RestProblemError:
    """A refusal that a form shows beside its input; others are raised."""
    if problem.status not in _REFUSALS:
        raise problem
    return problem


def asked_user(visit: Visit) -> str | None:
    """The other user whose disks an administrator looks at. REST refuses that to others."""
    asked = visit.query("user") or visit.form.get("user")
    return None if asked in (None, "", visit.principal.user) else asked


def asked_owner(visit: Visit) -> str:
    """The user whose disks are looked at."""
    return asked_user(visit) or visit.principal.user


def _of(visit: Visit) -> str:
    return "" if (user := asked_user(visit)) is None else f" of {user}"


def _title(visit: Visit) -> str:
    return "Your disks" if (user := asked_user(visit)) is None else f"Disks of {user}"


def _suffix(visit: Visit, owner: str) -> str:
    """What addresses of a user's disks end with."""
    return "" if owner == visit.principal.user else f"?user={visit.encoded(owner)}"


def page_for(visit: Visit, owner: str, disk: str | None = None) -> str:
    """The address of an owner's list, or of one disk."""
    return ("/disks" if disk is None else f"/disks/{disk}") + _suffix(visit, owner)


def fields_of(disk: DiskOut) -> dict[str, Any]:
    """A disk as the form that changes it begins."""
    return {"name": disk.name, "size": written_bytes(disk.size)}


def _name(visit: Visit) -> str:
    name = visit.path("disk")
    if not is_disk_name(name):
        raise RestProblemError.because(404, "You have no disk of this name. `gpu-dev disk list` shows all.")
    return name


async def asked_disk(visit: Visit) -> DiskOut:
    """The disk of the address."""
    return await visit.rest.get(DiskOut, f"/v1/disks/{_name(visit)}", {"user": asked_user(visit)})


def check_name(name: str) -> None:
    """Raise a refusal of what can't be a name."""
    if not is_disk_name(name):
        raise RestProblemError.because(
            422, "A disk's name has 1 to 63 lower-case letters, digits and `-`, and does not begin or end with `-`."
        )


ROUTES = (
    WebRoute("GET", "/disks", disks_page),
    WebRoute("POST", "/disks", create_disk),
    WebRoute("GET", "/disks/{disk}", disk_page),
    WebRoute("POST", "/disks/{disk}", change_disk),
    WebRoute("GET", "/disks/{disk}/delete", confirm_delete),
    WebRoute("POST", "/disks/{disk}/delete", delete_disk),
    WebRoute("POST", "/disks/{disk}/restore", restore_disk),
)
