"""Folders that jobs get, and what they bring back, by the command line on the local cluster."""

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from gpu_dev.calls.file_calls import FileCalls
from gpu_dev.server.connection import Connection
from gpu_dev.server.exchange import Exchange
from gpu_dev.sync.scanning import scan
from tests.integration.gpu_dev.conftest import System
from tests.waiting import eventually_sync

RUN = ("run", "-g1", "-d2m")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with everything that a folder may have."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "train.py").write_text("import pathlib; print(pathlib.Path('src/größe.txt').read_text())")
    (folder / "src" / "größe.txt").write_text("42")
    (folder / "run.sh").write_text(
        "#!/bin/sh\nmkdir -p out/sub; cp src/größe.txt out/sub/; ln -s sub out/link; date > out/when\n"
    )
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("src/größe.txt")
    (folder / ".gitignore").write_text("*.log\nbuild/\n!keep.log\n")
    (folder / "x.log").write_text("left out")
    (folder / "keep.log").write_text("kept")
    (folder / "build").mkdir()
    (folder / "build" / "x").write_text("left out")
    return folder


def test_a_job_works_in_the_folder_that_was_sent(system: System, project: Path) -> None:
    ran = system.cli(*RUN, "--sync", str(project), "--", "sh", "-c", "python3 train.py; cat link; find . | sort; pwd")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert (lines[0], lines[1][:2]) == ("42", "42")
    found = {line.removeprefix("42") for line in lines[1:-1]}
    assert found == {
        ".", "./.gitignore", "./empty", "./keep.log", "./link", "./run.sh", "./src", "./src/größe.txt", "./train.py",
    }  # fmt: skip
    assert "Sending" in ran.stderr


def test_what_a_job_made_comes_back(system: System, project: Path) -> None:
    ran = system.cli(*RUN, "--sync", str(project), "--fetch", "out/", "--", "./run.sh")
    assert ran.returncode == 0, ran.stderr
    assert (project / "out" / "sub" / "größe.txt").read_text() == "42"
    assert str((project / "out" / "link").readlink()) == "sub"
    [job] = json.loads(system.cli("list", "--all", "-o", "json").stdout)["items"]
    other = project.parent / "other"
    fetched = system.cli("fetch", job["id"], "--to", str(other))
    assert (fetched.returncode, (other / "out" / "when").exists()) == (0, True), fetched.stderr
    assert not (other / "train.py").exists()


def test_only_what_changed_is_sent_again(system: System, project: Path) -> None:
    first = system.cli(*RUN, "--sync", str(project), "--", "true")
    assert "Sending" in first.stderr
    again = system.cli(*RUN, "--sync", str(project), "--", "true")
    assert (again.returncode, "Sending" in again.stderr) == (0, False), again.stderr
    (project / "train.py").write_text("print('changed')")
    changed = system.cli(*RUN, "--sync", str(project), "--", "python3", "train.py")
    assert (changed.stdout, "Sending 16 bytes of" in changed.stderr) == ("changed\n", True), changed.stderr


def test_an_upload_that_was_killed_goes_on_where_it_ended(system: System, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    exchange = Exchange(Connection(system.url, system.tokens["alice"], "the test"))
    calls = FileCalls(exchange)
    missing = 0
    for _ in range(5):  # a client that was too quick to be killed is no example
        for name in "abcdefgh":
            (folder / name).write_bytes(os.urandom(8 * 2**20))
        entries = scan(folder, None)
        sending = system.begin("submit", "-g1", "-d2m", "--sync", str(folder), "--", "cmp", "a", "a")
        eventually_sync(lambda entries=entries: len(calls.put_folder(entries).missing) < 16)
        os.kill(sending.pid, signal.SIGKILL)
        sending.wait()
        missing = len(calls.put_folder(entries).missing)
        if missing:
            break
    exchange.close()
    assert 0 < missing < 16
    ran = system.cli(*RUN, "--sync", str(folder), "--", "sh", "-c", "sha256sum *")
    assert (ran.returncode, f"Sending {missing * 4}.0 MiB of 64.0 MiB" in ran.stderr) == (0, True), ran.stderr
    expected = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in "abcdefgh"]
    assert ran.stdout.splitlines() == expected


def test_the_commands_exit_code_and_signals_pass(system: System, project: Path) -> None:
    failed = system.cli(*RUN, "--sync", str(project), "--fetch", ".", "--", "sh", "-c", "echo x > new; exit 7")
    assert failed.returncode == 7
    assert (project / "new").read_text() == "x\n"
    missing = system.cli(*RUN, "--sync", str(project), "--", "no-such-program")
    assert (missing.returncode, "was not found" in missing.stdout) == (127, True), missing.stdout
    script = "trap 'echo asked > asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    job = system.cli("submit", "-g1", "-d2m", "--fetch", "asked", "--", "sh", "-c", script).stdout.strip()
    eventually_sync(lambda: "ready" in system.cli("logs", job).stdout)
    system.cli("cancel", job)
    eventually_sync(lambda: '"cancelled"' in system.cli("show", job, "-o", "json").stdout)
    other = project.parent / "other"
    assert system.cli("fetch", job, "--to", str(other)).returncode == 0
    assert (other / "asked").read_text() == "asked\n"


def test_a_session_begins_with_a_folder_and_keeps_files(system: System, project: Path) -> None:
    submitted = system.cli("submit", "-g1", "-d2m", "--sync", str(project), "--fetch", "out")
    session = submitted.stdout.strip()
    eventually_sync(lambda: "The folder is complete." in system.cli("logs", session).stdout)
    inside = system.cli("exec", session, "--", "sh", "-c", "./run.sh && [ $(cat link) = 42 ]")
    assert inside.returncode == 0, inside.stderr
    system.cli("cancel", session)
    eventually_sync(lambda: '"cancelled"' in system.cli("show", session, "-o", "json").stdout)
    other = project.parent / "other"
    assert system.cli("fetch", session, "--to", str(other)).returncode == 0
    assert (other / "out" / "sub" / "größe.txt").read_text() == "42"


def test_elements_of_an_array_have_files_of_their_own(system: System, project: Path) -> None:
    script = "cat src/größe.txt > out; echo .$GPU_DEV_ARRAY_INDEX >> out"
    words = ("--array", "0-1", "--sync", str(project), "--fetch", "out", "--wait", "--", "sh", "-c", script)
    ran = system.cli("submit", "-g1", "-d2m", *words)
    job = ran.stdout.split()[0]
    assert (ran.returncode, f"gpu-dev fetch {job}.0" in ran.stderr) == (0, True), ran.stderr
    assert not (project / "out").exists()
    for index in (0, 1):
        other = project.parent / f"other-{index}"
        assert system.cli("fetch", f"{job}.{index}", "--to", str(other)).returncode == 0
        assert (other / "out").read_text() == f"42.{index}\n"
    asked = system.cli("fetch", job, "--to", str(project.parent / "none"))
    assert (asked.returncode != 0, f"gpu-dev fetch {job}.0" in asked.stderr) == (True, True), asked.stderr


def test_a_folder_of_the_user_is_not_removed_for_a_file(system: System, project: Path) -> None:
    ran = system.cli(*RUN, "--fetch", "src", "--sync", str(project), "--", "sh", "-c", "rm -r src; echo x > src")
    job = json.loads(system.cli("list", "--all", "-o", "json").stdout)["items"][0]["id"]
    assert (ran.returncode != 0, f"Try again: gpu-dev fetch {job} --to DIR" in ran.stderr) == (True, True), ran.stderr
    assert (project / "src" / "größe.txt").read_text() == "42"


def test_what_leaves_the_folder_is_not_kept(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = "mkdir out; echo x > out/x; ln -s /etc/passwd out/link; mkfifo out/pipe"
    job = system.cli("submit", "-g1", "-d2m", "--fetch", "out", "--fetch", "no", "--wait", "--", "sh", "-c", script)
    printed = system.cli("logs", job.stdout.split()[0]).stdout
    assert all(said in printed for said in ("out/link", "out/pipe", "no is not there"))
    fetched = system.cli("fetch", job.stdout.split()[0], "--to", str(tmp_path / "to"))
    assert fetched.returncode == 0
    assert [path.name for path in (tmp_path / "to" / "out").iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sync", "/no/such/folder"), "there is no such folder"),
        (("--fetch", "../x"), "--fetch"),
        (("--fetch", "/x"), "--fetch"),
        (("--fetch", "a", "--fetch", "a/"), "stands twice"),
    ],
)
def test_what_can_not_be_meant_is_refused(unreachable: System, words: tuple[str, ...], said: str) -> None:
    done = unreachable.cli("submit", "-g1", "-d1m", *words, "--", "true")
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
