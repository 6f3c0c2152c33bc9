"""Disks as they are written on the command line, which ones go together, and where one stands."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.disks.disk_life import DiskState, DiskStep, next_step, state_of
from reservation_core.domain.disks.disk_uses import (
    HOME_PATH,
    MOST_IN_JOB,
    DiskUse,
    fault_of_home,
    fault_of_uses,
    is_disk_name,
    read_use,
    with_home,
    written_use,
)

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
PATHS = st.from_regex(r"/[a-z]{1,4}(/[a-z]{1,4}){0,2}", fullmatch=True)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@given(NAMES, PATHS, st.booleans())
def test_what_is_written_reads_as_it_was(name: str, path: str, read_only: bool) -> None:
    use = DiskUse(name, path, read_only)
    assert read_use(written_use(use)) == use


@pytest.mark.parametrize(
    ("text", "use"),
    [
        ("data", DiskUse("data", "/disks/data")),
        ("home", DiskUse("home", "/home/dev")),
        ("data:ro", DiskUse("data", "/disks/data", read_only=True)),
        ("data:/in:ro", DiskUse("data", "/in", read_only=True)),
    ],
)
def test_usual_forms(text: str, use: DiskUse) -> None:
    assert read_use(text) == use


@pytest.mark.parametrize(
    "text", ["", "Data", "-a", "a-", "a" * 64, "data:", "data:in", "data:/a:/b", "data:rw", ":/a", "a\n"]
)
def test_other_texts_are_no_disk(text: str) -> None:
    assert read_use(text) is None


@given(st.lists(st.builds(DiskUse, NAMES, PATHS), max_size=5), st.lists(PATHS, max_size=3))
def test_disks_go_together_unless_a_path_is_within_another(uses: list[DiskUse], files: list[str]) -> None:
    def is_within(path: str, folder: str) -> bool:
        parts = folder.split("/")
        return path.split("/")[: len(parts)] == parts

    paths = [use.path for use in uses]
    collide = any(is_within(a, b) for i, a in enumerate(paths) for j, b in enumerate(paths) if i != j)
    collide = collide or any(is_within(file, path) for file in files for path in paths)
    collide = collide or len({use.name for use in uses}) < len(uses)
    ours = any(is_within(path, folder) for path in paths for folder in ("/dev", "/proc", "/sys"))
    assert (fault_of_uses(uses, files) is not None) is (collide or ours)


@pytest.mark.parametrize("path", ["/", "/a/../b", "/a//b", "/a/", "/proc/x", "/dev", "/opt/gpu-dev/x"])
def test_paths_that_no_disk_can_have(path: str) -> None:
    assert fault_of_uses([DiskUse("data", path)], []) is not None


def test_names() -> None:
    assert is_disk_name("a" * 63)
    assert not is_disk_name("a\n")


@pytest.mark.parametrize(
    ("made", "deleted", "removing", "state", "step"),
    [
        (None, False, False, DiskState.CREATING, DiskStep.MAKE),
        (9, False, False, DiskState.READY, None),
        (5, False, False, DiskState.RESIZING, DiskStep.MAKE),
        (9, True, False, DiskState.DELETED, None),
        (None, True, True, DiskState.REMOVING, DiskStep.REMOVE),
    ],
)
def test_where_a_disk_stands(
    made: int | None, deleted: bool, removing: bool, state: DiskState, step: DiskStep | None
) -> None:
    assert state_of(9, made, NOW if deleted else None, is_removing=removing) is state
    assert next_step(state) is step


@given(st.lists(st.builds(DiskUse, NAMES, PATHS | st.just("/home") | st.just(HOME_PATH)), max_size=MOST_IN_JOB))
def test_home_is_added_where_a_job_may_have_it_besides(uses: list[DiskUse]) -> None:
    home = DiskUse("home", HOME_PATH)
    together = [*uses, home]
    fits = len(together) <= MOST_IN_JOB and fault_of_uses(together, []) is None
    assert with_home(uses, []) == tuple(together if fits else uses)


def test_home_gives_way_to_what_is_named() -> None:
    data = DiskUse("data", "/data")
    assert with_home([data], ["/home/dev/.ssh/key"]) == (data,)
    assert with_home([data], ["/run/key"]) == (data, DiskUse("home", HOME_PATH))
    many = [DiskUse(f"d{number}", f"/d{number}") for number in range(MOST_IN_JOB)]
    assert with_home(many, []) == tuple(many)
    assert fault_of_home(many[1:], []) is None
    assert fault_of_home(many, []) == f"a job has at most {MOST_IN_JOB} disks"
    assert "/home/dev/.ssh/key is at or within" in (fault_of_home([data], ["/home/dev/.ssh/key"]) or "")
