"""Snapshots of a disk, and clones of it and of them."""

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import RestProblemError
from api_service.web.routes.disks.own_disks import (
    asked_disk,
    asked_owner,
    asked_user,
    check_name,
    fields_of,
    page_for,
    show_disk,
    shown_refusal,
)
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.job_terms.disks import DiskOut, SnapshotOut


async def take_snapshot(visit: Visit) -> Response:
    """Take a snapshot. A refusal is shown with what was typed."""
    disk = await asked_disk(visit)
    name = visit.form.get("snapshot") or ""
    try:
        if name:
            check_name(name)
        body, query = {"name": name} if name else {}, {"user": asked_user(visit)}
        taken = await visit.rest.post(SnapshotOut, f"/v1/disks/{disk.name}/snapshots", body, query=query)
    except RestProblemError as problem:
        return show_disk(visit, disk, fields_of(disk), shown_refusal(problem), {"snapshot": name})
    place = page_for(visit, asked_owner(visit), disk.name)
    return visit.go(place, f"The snapshot {taken.name} of {disk.name} is being taken.")


async def clone_disk(visit: Visit) -> Response:
    """Clone a disk, or what was on it at a snapshot. A refusal is shown with what was typed."""
    disk = await asked_disk(visit)
    typed = {"name": visit.form.get("name") or "", "source": visit.form.get("source") or ""}
    try:
        check_name(typed["name"])
        source = {"disk": disk.name} | ({"snapshot": typed["source"]} if typed["source"] else {})
        clone = await visit.rest.post(DiskOut, "/v1/disks", {"name": typed["name"], "source": source})
    except RestProblemError as problem:
        return show_disk(visit, disk, fields_of(disk), shown_refusal(problem), typed)
    return visit.go(f"/disks/{clone.name}", f"The disk {clone.name} is being copied from {disk.name}.")


async def confirm_delete(visit: Visit) -> Response:
    """Say that a snapshot is deleted for good."""
    disk = await asked_disk(visit)
    name = visit.path("snapshot")
    if name not in {snapshot.name for snapshot in disk.snapshots}:
        raise RestProblemError.because(404, f"{disk.name} has no such snapshot. `gpu-dev disk list` shows all.")
    fields = {} if (user := asked_user(visit)) is None else {"user": user}
    losses = ["A snapshot can't be restored.", "The disk and its clones stay as they are."]
    back = page_for(visit, asked_owner(visit), disk.name)
    return ask(
        visit, f"Delete the snapshot {name} of {disk.name}?", losses, words="Delete it", back=back, fields=fields
    )


async def delete_snapshot(visit: Visit) -> Response:
    """Delete a snapshot."""
    disk = await asked_disk(visit)
    name = visit.path("snapshot")
    check_name(name)
    address = f"/v1/disks/{disk.name}/snapshots/{name}"
    await visit.rest.call(SnapshotOut, "DELETE", address, query={"user": asked_user(visit)})
    return visit.go(page_for(visit, asked_owner(visit), disk.name), f"The snapshot {name} of {disk.name} is deleted.")


ROUTES = (
    WebRoute("POST", "/disks/{disk}/snapshots", take_snapshot),
    WebRoute("POST", "/disks/{disk}/clone", clone_disk),
    WebRoute("GET", "/disks/{disk}/snapshots/{snapshot}/delete", confirm_delete),
    WebRoute("POST", "/disks/{disk}/snapshots/{snapshot}/delete", delete_snapshot),
)
