"""What `gpu-dev disk list` says of disks."""

from datetime import UTC, datetime

from gpu_dev.commands.people.disk import _DISK
from gpu_dev.display.output import Format, show_list
from gpu_dev.wire.job_terms.disks import DiskOut
from reservation_core.domain.disks.disk_life import DiskState

CREATED_AT = datetime(2030, 1, 1, tzinfo=UTC)


def disk(name: str, problem: str | None) -> DiskOut:
    return DiskOut(
        name=name, state=DiskState.CREATING, size=2**30, used=None, measured_at=None, created_at=CREATED_AT,
        deleted_at=None, kept_until=None, problem=problem, jobs=[],
    )  # fmt: skip


def test_the_list_says_why_a_disk_is_not_made() -> None:
    shown = show_list([disk("big", "There is no room."), disk("fine", None)], _DISK, Format.TABLE)
    titles, big, fine = str(shown).splitlines()
    assert titles.endswith("PROBLEM")
    assert big.endswith("There is no room.")
    assert not fine.endswith("There is no room.")
