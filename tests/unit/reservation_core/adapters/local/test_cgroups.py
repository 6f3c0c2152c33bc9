"""Control groups of local pods, on a folder made like one of cgroup v2."""

from pathlib import Path

import pytest

from reservation_core.adapters.local.limits.cgroups import PodCgroups
from reservation_core.domain.request_terms import Resources, Share

ASKED = Resources(Share(2500, 64 * 2**20), 2**20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    return tmp_path


def test_a_pod_is_kept_to_what_its_job_asked_for(folder: Path) -> None:
    groups = PodCgroups.open(folder)
    assert (folder / "cgroup.subtree_control").read_text() == "+cpu +memory"
    group = groups.make("job-a-1-0", ASKED)
    assert group == folder / "job-a-1-0"
    assert (group / "cpu.max").read_text() == "250000 100000"
    assert (group / "memory.max").read_text() == str(64 * 2**20)
    only = groups.make("job-b-1-0", Resources(Share(None, 2**20)))
    assert only is not None
    assert not (only / "cpu.max").exists()


def test_the_kernel_takes_no_less_than_a_hundredth_of_a_cpu(folder: Path) -> None:
    group = PodCgroups.open(folder).make("job-a-1-0", Resources(Share(1, None)))
    assert group is not None
    assert (group / "cpu.max").read_text() == "1000 100000"


def test_a_job_that_asks_for_neither_has_no_group(folder: Path) -> None:
    groups = PodCgroups.open(folder)
    assert groups.make("job-a-1-0", None) is None
    assert groups.make("job-a-1-0", Resources(shm_bytes=2**20)) is None


def test_groups_of_ended_pods_are_removed(folder: Path) -> None:
    groups = PodCgroups.open(folder)
    (folder / "job-a-1-0").mkdir()
    (folder / "job-b-1-0").mkdir()
    (folder / "job-b-1-0" / "still-there").write_text("")  # stands for a process in it: rmdir fails
    groups.remove_empty()
    assert not (folder / "job-a-1-0").exists()
    assert (folder / "job-b-1-0").exists()


@pytest.mark.parametrize("controllers", ["cpu io", None])
def test_where_nothing_can_be_kept_it_says_why(tmp_path: Path, controllers: str | None) -> None:
    if controllers is not None:
        (tmp_path / "cgroup.controllers").write_text(controllers)
    groups = PodCgroups.open(tmp_path)
    assert groups.make("job-a-1-0", ASKED) is None
    assert groups.why_not is not None
    assert str(tmp_path) in groups.why_not
    assert "GPU_DEV_LOCAL_CGROUP" in (PodCgroups.open(None).why_not or "")
