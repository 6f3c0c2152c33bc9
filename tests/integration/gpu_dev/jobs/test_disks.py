"""Disks of users, which outlive jobs, by the command line on the local cluster."""

import json
import re
from typing import Any

from tests.integration.gpu_dev.conftest import System
from tests.waiting import eventually_sync

RUN = ("run", "-g1", "-d2m")


def disk_of(system: System, name: str = "data", **more: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(system.cli("disk", "show", name, "-o", "json", **more).stdout)
    return shown


def made(system: System, name: str = "data", size: str = "1Gi") -> None:
    created = system.cli("disk", "create", name, "--size", size)
    assert created.returncode == 0, created.stderr
    eventually_sync(lambda: disk_of(system, name)["state"] == "ready")


def test_what_a_job_writes_is_there_for_the_next_one(system: System) -> None:
    made(system)
    first = system.cli(*RUN, "--disk", "data", "--", "sh", "-c", "echo 42 > $GPU_DEV_DISK_FOLDER/disks/data/answer")
    assert first.returncode == 0, first.stderr
    second = system.cli(*RUN, "--disk", "data:/in:ro", "--", "sh", "-c", "cat $GPU_DEV_DISK_FOLDER/in/answer")
    assert (second.returncode, second.stdout) == (0, "42\n"), second.stderr
    ids = [job["id"] for job in json.loads(system.cli("list", "--all", "-o", "json").stdout)["items"]]
    uses = [re.findall(r"disks +(.+)", system.cli("show", job).stdout) for job in ids]
    assert uses == [["data at /in (read-only)"], ["data at /disks/data"]]
    eventually_sync(lambda: disk_of(system)["used"] == 4096)


def test_one_job_writes_at_a_time_and_others_may_read(system: System) -> None:
    made(system)
    first = system.cli("submit", "-g1", "-d5m", "--disk", "data", "--", "sleep", "300").stdout.strip()
    refused = system.cli("submit", "-g1", "-d5m", "--disk", "data", "--", "true")
    assert refused.returncode != 0
    assert f"The job {first} has the disk data until it ends" in refused.stderr
    reading = system.cli(*RUN, "--disk", "data:ro", "--", "ls", "-a")
    assert reading.returncode == 0, reading.stderr
    assert f"The job {first} has the disk data" in system.cli("disk", "delete", "data").stderr
    assert [use["job"] for use in disk_of(system)["jobs"]] == [first]
    system.cli("cancel", first)
    eventually_sync(lambda: disk_of(system)["jobs"] == [])
    again = system.cli(*RUN, "--disk", "data", "--", "true")
    assert again.returncode == 0, again.stderr


def test_a_deleted_disk_can_be_restored(system: System) -> None:
    made(system)
    system.cli(*RUN, "--disk", "data", "--", "sh", "-c", "echo 42 > $GPU_DEV_DISK_FOLDER/disks/data/answer")
    deleted = system.cli("disk", "delete", "data", "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert system.cli("disk", "list").stdout.startswith("No disks.")
    assert system.cli("disk", "list", "--deleted", who="bob").stdout == "No deleted disk can be restored.\n"
    assert "You have no disk data" in system.cli(*RUN, "--disk", "data", "--", "true").stderr
    assert "data" in system.cli("disk", "list", "--deleted").stdout
    restored = system.cli("disk", "restore", "data")
    assert (restored.returncode, restored.stdout) == (0, "data is restored\n"), restored.stderr
    read = system.cli(*RUN, "--disk", "data", "--", "sh", "-c", "cat $GPU_DEV_DISK_FOLDER/disks/data/answer")
    assert read.stdout == "42\n", read.stderr


def test_a_disk_gets_another_name_and_more_room(system: System) -> None:
    made(system)
    assert system.cli("disk", "rename", "data", "more").stdout == "data is now more\n"
    assert system.cli("disk", "resize", "more", "2Gi").stdout == "more has 2 GiB\n"
    eventually_sync(lambda: disk_of(system, "more")["state"] == "ready")
    smaller = system.cli("disk", "resize", "more", "1Gi")
    assert "disks can't be made smaller" in smaller.stderr


def test_disks_are_their_owners(system: System) -> None:
    made(system)
    assert "You have no disk data" in system.cli(*RUN, "--disk", "data", "--", "true", who="bob").stderr
    assert "You have no disk data" in system.cli("disk", "show", "data", who="bob").stderr
    assert system.cli("disk", "list", who="bob").stdout.startswith("No disks.")


def test_bad_names_sizes_and_places_are_refused(system: System) -> None:
    assert "can't be a disk's name" in system.cli("disk", "create", "Data", "--size", "1Gi").stderr
    assert "--size must be" in system.cli("disk", "create", "data", "--size", "much").stderr
    assert "at most 1 TiB" in system.cli("disk", "create", "data", "--size", "900Ti").stderr
    assert "You have no disk data" in system.cli(*RUN, "--disk", "data", "--", "true").stderr
    made(system)
    assert "You have a disk data already" in system.cli("disk", "create", "data", "--size", "1Gi").stderr
    for wrong in ("data:relative", "data:/a:/b", "data:/proc/x"):
        refused = system.cli(*RUN, "--disk", wrong, "--", "true")
        assert refused.returncode == 2, refused.stderr
    elements = system.cli("submit", "-g1", "-d1m", "--array", "0-9", "--disk", "data", "--", "true")
    assert "would write to a disk at once" in elements.stderr


def test_a_disk_is_given_to_another_user_with_what_is_on_it(system: System) -> None:
    made(system)
    system.cli(*RUN, "--disk", "data", "--", "sh", "-c", "echo 42 > $GPU_DEV_DISK_FOLDER/disks/data/answer")
    assert "Only administrators give disks" in system.cli("disk", "give", "data", "--to", "bob").stderr
    assert "Only administrators" in system.cli("disk", "list", "--user", "alice", who="bob").stderr
    assert "data" in system.cli("disk", "list", "--user", "alice", who="admin").stdout
    given = system.cli("disk", "give", "data", "--user", "alice", "--to", "bob", "--as", "answers", who="admin")
    assert (given.returncode, given.stdout) == (0, "data is now the disk answers of bob\n"), given.stderr
    read = system.cli(
        *RUN, "--disk", "answers", "--", "sh", "-c", "cat $GPU_DEV_DISK_FOLDER/disks/answers/answer", who="bob"
    )
    assert read.stdout == "42\n", read.stderr
    assert system.cli("disk", "list").stdout.startswith("No disks.")
    deleted = system.cli("disk", "delete", "answers", "--user", "bob", who="admin")
    assert "gpu-dev disk restore answers --user bob" in deleted.stdout
    assert system.cli("disk", "restore", "answers", "--user", "bob", who="admin").returncode == 0


WRITE = "cd $GPU_DEV_DISK_FOLDER/disks/data"


def is_taken(system: System, name: str, disk: str = "data") -> bool:
    return any(taken["name"] == name and taken["ready"] for taken in disk_of(system, disk)["snapshots"])


def test_a_snapshot_keeps_what_was_on_the_disk_and_is_cloned(system: System) -> None:
    made(system)
    system.cli(
        *RUN, "--disk", "data", "--", "sh", "-c", f"{WRITE}; echo 41 > answer; ln answer again; ln -s answer link"
    )
    taken = system.cli("disk", "snapshot", "data", "--name", "first")
    assert taken.returncode == 0, taken.stderr
    eventually_sync(lambda: is_taken(system, "first"))
    changed = system.cli(*RUN, "--disk", "data", "--", "sh", "-c", f"{WRITE}; echo 42 > answer")
    assert changed.returncode == 0, changed.stderr
    assert system.cli("disk", "clone", "data", "now").returncode == 0
    assert system.cli("disk", "clone", "data", "then", "--snapshot", "first", "--size", "2Gi").returncode == 0
    for name, says in (("now", "42"), ("then", "41")):
        eventually_sync(lambda name=name: disk_of(system, name)["state"] == "ready")
        read = system.cli(
            *RUN, "--disk", name, "--", "sh", "-c", f"cd $GPU_DEV_DISK_FOLDER/disks/{name}; cat link again"
        )
        assert read.stdout == f"{says}\n{says}\n", read.stderr
    assert disk_of(system, "then")["size"] == 2 * 2**30
    assert "first of " in system.cli("disk", "show", "data").stdout
    asked = system.cli("disk", "delete-snapshot", "data", "first")
    assert "Add --yes" in asked.stderr
    deleted = system.cli("disk", "delete-snapshot", "data", "first", "--yes")
    assert (deleted.returncode, deleted.stdout) == (0, "first is deleted\n"), deleted.stderr
    assert disk_of(system)["snapshots"] == []


def test_a_session_has_the_disk_home(system: System) -> None:
    made(system, "home")
    first = system.cli("submit", "-g1", "-d5m")
    assert "The session has your disk home at $GPU_DEV_DISK_FOLDER/home/dev." in first.stderr
    job = first.stdout.strip()
    assert [use["job"] for use in disk_of(system, "home")["jobs"]] == [job]
    writes = ("--", "sh", "-c", "echo 42 > $GPU_DEV_DISK_FOLDER/home/dev/f")
    eventually_sync(lambda: system.cli("exec", job, *writes).returncode == 0)
    refused = system.cli("submit", "-g1", "-d5m")
    assert f"The job {job} has the disk home until it ends" in refused.stderr
    assert "`gpu-dev dev --no-home` starts one without it" in refused.stderr
    for option in (["--no-home"], ["--disk", "home:ro"]):
        assert system.cli("submit", "-g1", "-d5m", *option).returncode == 0, option
    assert system.cli(*RUN, "--", "true").returncode == 0  # a command has what it names
    system.cli("cancel", job)
    eventually_sync(lambda: all(use["read_only"] for use in disk_of(system, "home")["jobs"]))
    second = system.cli("submit", "-g1", "-d5m").stdout.strip()
    reads = ("--", "sh", "-c", "cat $GPU_DEV_DISK_FOLDER/home/dev/f")
    eventually_sync(lambda: system.run_whole("exec", second, *reads).stdout == b"42\n")


def test_a_session_without_its_home_says_why(system: System) -> None:
    without = "The session is without your disk home, because "
    made(system)
    nothing = system.cli("submit", "-g1", "-d5m", "--disk", "data:/home/dev/data:ro")
    assert "home, because" not in nothing.stderr  # there is no such disk
    made(system, "home")
    within = system.cli("submit", "-g1", "-d5m", "--disk", "data:/home/dev/data:ro")
    assert f"{without}/home/dev/data is at or within the path of the disk home" in within.stderr
    assert system.cli("secret", "set", "KEY", stdin="secret\n").returncode == 0
    key = system.cli("submit", "-g1", "-d5m", "--secret", "KEY=/home/dev/.ssh/key")
    assert f"{without}/home/dev/.ssh/key is at or within" in key.stderr, key.stderr
    for options in (["--no-home"], ["--", "true"]):
        assert without not in system.cli("submit", "-g1", "-d5m", "--disk", "data:/home/dev/data:ro", *options).stderr


def test_a_snapshot_of_anothers_disk_advises_no_clone_of_ones_own(system: System) -> None:
    made(system)
    taken = system.cli("disk", "snapshot", "data", "--name", "first", "--user", "alice", who="admin")
    assert (taken.returncode, taken.stdout) == (0, "The snapshot first of data is being taken.\n"), taken.stderr
    own = system.cli("disk", "snapshot", "data", "--name", "second")
    assert "Use it: gpu-dev disk clone data NEW --snapshot second" in own.stdout
