"""`gpu-dev cp`: files and folders, with their modes, by nothing but `sh` and `tar`."""

import os
import shlex
import stat
import tarfile
from pathlib import Path

import pytest

from gpu_dev.errors import UsageError
from gpu_dev.sessions.files.archives import unpack
from gpu_dev.sessions.files.job_paths import JobPath, read_path, read_paths
from tests.integration.gpu_dev.sessions.conftest import Person
from tests.sessions.sessions_server import JOB


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with everything that is copied."""
    top = tmp_path / "tree"
    (top / "empty").mkdir(parents=True)
    (top / "script").write_text("#!/bin/sh\n")
    (top / "script").chmod(0o755)
    (top / "secret").write_bytes(bytes(range(256)) * 5_000)
    (top / "secret").chmod(0o600)
    (top / "name with 'quotes' and ü").touch()
    (top / "-x").touch()
    (top / "link").symlink_to("script")
    (top / "outside").symlink_to("/etc/hostname")
    os.link(top / "script", top / "twin")
    (top / "closed").mkdir()
    (top / "closed" / "inner").write_text("in")
    (top / "closed").chmod(0o550)
    os.mkfifo(top / "pipe")
    return top


def contents(top: Path) -> dict[str, tuple[str, int, bytes]]:
    """Kind, mode and content of all that is below a folder."""
    found = {}
    for path in sorted(top.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISFIFO(mode):
            continue
        text = str(path.readlink()).encode() if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
        permissions = 0 if path.is_symlink() else stat.S_IMODE(mode)
        found[str(path.relative_to(top))] = (stat.filemode(mode)[0], permissions, text)
    return found


def test_a_folder_there_and_back(ann: Person, tree: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    done = ann.run("cp", "-r", str(tree), f"{JOB}:{there}")
    assert done.returncode == 0, done.stderr
    assert b"pipe is skipped" in done.stderr
    assert contents(there) == contents(tree)
    done = ann.run("cp", f"{JOB}:{there}", str(back))
    assert (done.returncode, done.stderr) == (0, b"")
    assert contents(back) == contents(tree)
    assert int(back.stat().st_mtime) == int(tree.stat().st_mtime)


def test_into_a_folder_that_exists(ann: Person, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    assert ann.run("cp", str(tree / "secret"), f"{JOB}:{tmp_path}/into/").returncode == 0
    assert (tmp_path / "into" / "secret").read_bytes() == (tree / "secret").read_bytes()
    assert ann.run("cp", f"{JOB}:{tree}/script", str(tmp_path / "into")).returncode == 0
    assert (tmp_path / "into" / "script").stat().st_mode & 0o777 == 0o755


def test_a_file_is_written_over_and_a_link_is_followed(ann: Person, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("old")
    assert ann.run("cp", f"{JOB}:{tree}/link", str(tmp_path / "copy")).returncode == 0
    assert (tmp_path / "copy").read_text() == "#!/bin/sh\n"
    assert not (tmp_path / "copy").is_symlink()
    assert ann.run("cp", str(tree / "link"), f"{JOB}:{tree}/secret").returncode == 0
    assert (tree / "secret").read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("{tree}/nothing", "JOB:x", "There is no file or folder {tree}/nothing on this machine."),
        ("JOB:{tree}/nothing", "x", "There is no file or folder {tree}/nothing in"),
        ("{tree}/script", "JOB:{tree}/no/where", "There is no folder {tree}/no in the job."),
        ("{tree}/script", "JOB:{tree}/no/", "There is no folder {tree}/no/ in the job."),
        ("{tree}", "JOB:{tree}/script", "is a file in the job"),
        ("JOB:{tree}", "{tree}/no/where", "There is no folder {tree}/no on this machine."),
        ("a", "b", "One of the two paths must be in a job"),
        ("JOB:a", "JOB:b", "One of the two paths must be in a job"),
    ],
)
def test_what_can_not_be_copied(ann: Person, tree: Path, source: str, target: str, said: str) -> None:
    words = [text.format(tree=tree).replace("JOB", JOB) for text in (source, target)]
    done = ann.run("cp", *words)
    assert done.returncode in (2, 3)
    assert said.format(tree=tree) in done.stderr.decode()


@pytest.mark.parametrize("missing", ["tar", "sh"])
def test_an_image_without_what_is_needed(
    ann: Person, tree: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tree.parent / "bin"
    folder.mkdir()
    if missing == "tar":
        (folder / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(folder))  # the programs of the "job" are found there
    done = ann.run("cp", str(tree), f"{JOB}:{tree.parent}/there")
    assert done.returncode == 4
    assert f"there is no `{missing}` in it" in done.stderr.decode()


def archive(path: Path, *members: tuple[str, bytes, str]) -> Path:
    with tarfile.open(path, "w") as made:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            made.addfile(member)
    return path


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", tarfile.REGTYPE, "")],
        [("/evil", tarfile.REGTYPE, "")],
        [("it/../../evil", tarfile.REGTYPE, "")],
        [("it", tarfile.DIRTYPE, ""), ("it/up", tarfile.SYMTYPE, "../.."), ("it/up/evil", tarfile.REGTYPE, "")],
        [("it", tarfile.DIRTYPE, ""), ("it/hard", tarfile.LNKTYPE, "it/../../victim")],
        [("it", tarfile.DIRTYPE, ""), ("it/abs", tarfile.LNKTYPE, "/etc/passwd")],
    ],
)
def test_a_hostile_archive_writes_nothing_outside(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    (tmp_path / "deep" / "target").mkdir(parents=True)
    (tmp_path / "victim").write_text("mine")
    before = set(tmp_path.rglob("*"))
    made = archive(tmp_path / "a.tar", *members)
    with made.open("rb") as stream, pytest.raises((tarfile.TarError, OSError, KeyError)):
        unpack(stream, "it", tmp_path / "deep" / "target" / "it", lambda _: None)
    outside = {path for path in tmp_path.rglob("*") if "target" not in path.parts} - before - {made}
    assert outside == set()
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "victim").stat().st_nlink == 1


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    made = archive(
        tmp_path / "a.tar",
        ("it", tarfile.DIRTYPE, ""),
        ("it/f", tarfile.SYMTYPE, str(tmp_path / "victim")),
        ("it/f", tarfile.REGTYPE, ""),
    )
    with made.open("rb") as stream:
        unpack(stream, "it", tmp_path / "it", lambda _: None)
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "it" / "f").is_symlink()


def test_paths() -> None:
    assert read_path("job-1:a/b") == JobPath("job-1", "a/b")
    assert read_path("notebook:") == JobPath("notebook", ".")
    assert read_path("./a:b") == "./a:b"
    assert read_path(":a") == ":a"
    with pytest.raises(UsageError):
        read_paths("a", "b")


def test_a_file_that_can_not_be_written_is_named_with_the_cause_alone(ann: Person, tree: Path) -> None:
    done = ann.run("cp", f"{JOB}:{tree}/script", "/proc/script")
    assert done.returncode == 4
    assert done.stderr.decode().strip() == "error: /proc/script can't be written: No such file or directory."


def test_a_missing_folder_can_be_made_with_the_command_that_is_shown(ann: Person, tree: Path) -> None:
    done = ann.run("cp", f"{tree}/script", f"{JOB}:{tree}/it's new/")
    shown = done.stderr.decode().rpartition("try: gpu-dev ")[2]
    assert ann.run(*shlex.split(shown)).returncode == 0
    assert ann.run("cp", f"{tree}/script", f"{JOB}:{tree}/it's new/").returncode == 0
