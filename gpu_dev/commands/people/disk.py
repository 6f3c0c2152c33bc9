"""`disk create|list|show|resize|rename|delete|restore|give|snapshot|delete-snapshot|clone`."""

from itertools import islice
from typing import Annotated

import typer
from msgspec.structs import replace

from gpu_dev.display.local_times import local_time
from gpu_dev.display.output import Column, Format, View, show_list, show_one
from gpu_dev.errors import UsageError
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.ids import require_known
from gpu_dev.inputs.requests import make_request
from gpu_dev.options import Output, Yes
from gpu_dev.session import client_for
from gpu_dev.terminal import put
from gpu_dev.wire.job_terms.disks import DiskChange, DiskCreate, DiskOut, SnapshotCreate, SnapshotOut
from reservation_core.domain.disks.disk_uses import DISKS_VARIABLE, is_disk_name, usual_path
from reservation_core.domain.request_terms import size_words

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000


def _jobs(disk: DiskOut) -> str:
    return ", ".join(f"{use.job} (reads)" if use.read_only else use.job for use in disk.jobs)


def _snapshot(snapshot: SnapshotOut) -> str:
    state = "" if snapshot.ready else f" ({snapshot.problem or 'not ready'})"
    return f"{snapshot.name} of {local_time(snapshot.created_at)}{state}"


_COLUMNS = (
    Column[DiskOut]("NAME", lambda disk: disk.name),
    Column[DiskOut]("STATE", lambda disk: disk.state.value),
    Column[DiskOut]("SIZE", lambda disk: size_words(disk.size)),
    Column[DiskOut]("USED", lambda disk: "" if disk.used is None else size_words(disk.used)),
    Column[DiskOut]("SNAPSHOTS", lambda disk: str(len(disk.snapshots) or "")),
    Column[DiskOut]("JOBS", _jobs),
    Column[DiskOut]("CREATED", lambda disk: local_time(disk.created_at)),
    Column[DiskOut]("KEPT UNTIL", lambda disk: local_time(disk.kept_until)),
    Column[DiskOut]("PROBLEM", lambda disk: disk.problem or ""),
)
_DISK: View[DiskOut] = View(
    name=lambda disk: disk.name, columns=_COLUMNS, empty="No disks. Create one: gpu-dev disk create NAME --size 100Gi"
)
_DELETED = replace(_DISK, empty="No deleted disk can be restored.")
_DETAILS: View[DiskOut] = View(
    name=lambda disk: disk.name,
    columns=(
        *(column for column in _COLUMNS[:-1] if column.title != "SNAPSHOTS"),
        Column[DiskOut]("SNAPSHOTS", lambda disk: ", ".join(map(_snapshot, disk.snapshots))),
        Column[DiskOut]("MEASURED", lambda disk: local_time(disk.measured_at)),
        _COLUMNS[-1],
    ),
)

DiskName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name: lower-case letters, digits and `-`."),
]
OfUser = Annotated[
    str | None, typer.Option("--user", metavar="USER", help="Of this user (administrators; default: you).")
]
Size = Annotated[str, typer.Option("--size", metavar="SIZE", help="How much fits on it, such as 100Gi.")]


@app.command()
def create(ctx: typer.Context, name: DiskName, size: Size) -> None:
    """Create an empty disk. What jobs write to it outlives them."""
    request = make_request(DiskCreate, {"name": _checked(name), "size": size})
    with client_for(ctx) as client:
        disk = client.disks.create(request)
    path = f"${DISKS_VARIABLE}{usual_path(disk.name)}"
    put(f"{disk.name} is created. A job has it at {path}: gpu-dev run --disk {disk.name} …\n")


@app.command("list")
def list_disks(
    ctx: typer.Context,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Deleted disks that can still be restored instead.")
    ] = False,
    user: OfUser = None,
    output: Output = Format.TABLE,
) -> None:
    """List your disks, with the jobs that have them."""
    with client_for(ctx) as client:
        view = _DELETED if deleted else _DISK
        put(show_list(list(islice(client.disks.disks(deleted=deleted, user=user), _MOST)), view, output))


@app.command()
def show(ctx: typer.Context, name: DiskName, user: OfUser = None, output: Output = Format.TABLE) -> None:
    """Show a disk: how full it is, and which jobs have it."""
    with client_for(ctx) as client:
        put(show_one(client.disks.disk(_checked(name), user), _DETAILS, output))


@app.command()
def resize(
    ctx: typer.Context,
    name: DiskName,
    size: Annotated[str, typer.Argument(metavar="SIZE", help="Its new size, such as 200Gi; never less than it has.")],
    user: OfUser = None,
) -> None:
    """Make a disk larger. Jobs that have it go on."""
    request = make_request(DiskChange, {"size": size}, size="SIZE")
    with client_for(ctx) as client:
        disk = client.disks.change(_checked(name), request, user)
    put(f"{disk.name} has {size_words(disk.size)}\n")


@app.command()
def rename(
    ctx: typer.Context,
    name: DiskName,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    user: OfUser = None,
) -> None:
    """Rename a disk. Jobs that have it go on, and keep its path."""
    request = make_request(DiskChange, {"name": _checked(new)})
    with client_for(ctx) as client:
        disk = client.disks.change(_checked(name), request, user)
    put(f"{name} is now {disk.name}\n")


@app.command()
def delete(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of disks.")],
    user: OfUser = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Has no effect: this does not ask.")] = False,
) -> None:
    """Delete disks that no job has. They can be restored for a while, by default 30 days."""
    del yes  # scripts give it to every command that deletes
    with client_for(ctx) as client:
        for name in names:
            disk = client.disks.delete(_checked(name), user)
            until = local_time(disk.kept_until)  # none for one that could not be made
            again = f" Until {until}: gpu-dev disk restore {disk.name}{_of(user)}" if until else ""
            put(f"{disk.name} is deleted.{again}\n")


@app.command()
def restore(ctx: typer.Context, name: DiskName, user: OfUser = None) -> None:
    """Restore the disk of this name that was deleted last, with what was on it."""
    with client_for(ctx) as client:
        put(f"{client.disks.restore(_checked(name), user).name} is restored\n")


@app.command()
def give(
    ctx: typer.Context,
    name: DiskName,
    to: Annotated[str, typer.Option("--to", metavar="USER", help="The user who gets it.")],
    rename_to: Annotated[str | None, typer.Option("--as", metavar="NEW", help="Its name from then on.")] = None,
    user: OfUser = None,
) -> None:
    """Give a disk to another user, also a disabled user's disk (administrators). No job may have it."""
    fields = {"owner": to} if rename_to is None else {"owner": to, "name": _checked(rename_to)}
    with client_for(ctx) as client:
        disk = client.disks.change(_checked(name), make_request(DiskChange, fields, owner="--to"), user)
    put(f"{name} is now the disk {disk.name} of {to}\n")


@app.command()
def snapshot(
    ctx: typer.Context,
    name: DiskName,
    snapshot_name: Annotated[
        str | None, typer.Option("--name", metavar="S", help="Its name; by default the time, such as 20261127-180000.")
    ] = None,
    user: OfUser = None,
) -> None:
    """Keep what is on a disk now, to clone it later. A snapshot counts as much as its disk.

    On a server whose jobs run on its own machine, a disk is copied while no job writes to it: jobs that would are
    refused until the snapshot is ready.
    """
    fields = {} if snapshot_name is None else {"name": _checked(snapshot_name)}
    with client_for(ctx) as client:
        taken = client.disks.take_snapshot(_checked(name), make_request(SnapshotCreate, fields), user)
    # A clone is made of one's own disks.
    use = "" if user is not None else f" Use it: gpu-dev disk clone {name} NEW --snapshot {taken.name}"
    put(f"The snapshot {taken.name} of {name} is being taken.{use}\n")


@app.command()
def delete_snapshot(
    ctx: typer.Context,
    name: DiskName,
    snapshots: Annotated[list[str], typer.Argument(metavar="SNAPSHOT", help="Names of its snapshots.")],
    user: OfUser = None,
    yes: Yes = False,
) -> None:
    """Delete snapshots of a disk for good. The disk and its clones stay as they are.

    A snapshot can't be restored, so the command asks first.
    """
    with client_for(ctx) as client:
        if not yes:
            known = [kept.name for kept in client.disks.disk(_checked(name), user).snapshots]
            for kept in snapshots:
                require_known(kept, known, "snapshot", f"gpu-dev disk show {name}{_of(user)}")
            confirmed(f"Delete {', '.join(snapshots)} of {name}? Snapshots can't be restored.", yes=yes)
        for kept in snapshots:
            put(f"{client.disks.delete_snapshot(_checked(name), _checked(kept), user).name} is deleted\n")


@app.command()
def clone(
    ctx: typer.Context,
    name: DiskName,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The name of the new disk.")],
    snapshot_name: Annotated[
        str | None, typer.Option("--snapshot", metavar="S", help="Clone what was on it when this snapshot was taken.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size", metavar="SIZE", help="How much fits on the clone (default: as much as on the original)."
        ),
    ] = None,
) -> None:
    """Create a disk that begins with what is on another one, or with one of its snapshots."""
    source = {"disk": _checked(name)} | ({} if snapshot_name is None else {"snapshot": _checked(snapshot_name)})
    fields = {"name": _checked(new), "source": source} | ({} if size is None else {"size": size})
    with client_for(ctx) as client:
        disk = client.disks.create(make_request(DiskCreate, fields))
    put(f"{disk.name} is being copied. It is ready when `gpu-dev disk show {disk.name}` says so.\n")


def _of(user: str | None) -> str:
    return "" if user is None else f" --user {user}"


def _checked(name: str) -> str:
    if not is_disk_name(name):
        raise UsageError(
            f"{name!r} can't be a disk's name. Use 1 to 63 lower-case letters, digits and `-`; begin and end with a"
            " letter or digit."
        )
    return name
