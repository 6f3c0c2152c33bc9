"""What administrators do at the command line about nodes that are away and pods that nobody knows."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import text

from reservation_core.adapters.postgres.connection.engine import open_engine
from tests.integration.gpu_dev.conftest import ROOT, System
from tests.waiting import PATIENCE_S, eventually_sync


@pytest.fixture
def run_sql(database_url: str):
    """Runs statements on the system's database, in one transaction."""

    def run(*statements: str) -> None:
        async def once() -> None:
            engine = open_engine(database_url, pool=1, application="test")
            async with engine.begin() as connection:
                for statement in statements:
                    await connection.execute(text(statement))
            await engine.dispose()

        asyncio.run(once())

    return run


def node_of(system: System) -> str:
    [name] = system.cli("nodes", "-o", "name").stdout.split()
    return name


def test_a_node_is_fenced_and_unfenced(system: System, run_sql) -> None:
    node = node_of(system)
    refused = system.cli("nodes", "fence", node, "--yes", who="admin")
    assert (refused.returncode, "is ready" in refused.stderr) == (4, True)
    run_sql("UPDATE nodes SET ready = false, zone = 'eu-1', logical_name = 'rack-7'")
    assert system.cli("nodes", "fence", node, "--yes").returncode == 6
    unasked = system.cli("nodes", "fence", node, who="admin")
    assert (unasked.returncode, f"try: gpu-dev nodes fence {node} --yes" in unasked.stderr) == (2, True)
    fenced = system.cli("nodes", "fence", node, "--yes", "--reason", "No power.", who="admin")
    assert (fenced.returncode, f"gpu-dev nodes unfence {node}" in fenced.stdout) == (0, True), fenced.stderr
    wide = system.cli("nodes", "-o", "wide").stdout
    for words in ("rack-7", "eu-1", "by admin", "(No power.)"):
        assert words in wide
    [shown] = json.loads(system.cli("nodes", "-o", "json").stdout)["items"]
    assert (shown["fenced_by"], shown["free"]) == ("admin", 0)
    assert json.loads(system.cli("gpus", "-o", "json").stdout)["items"][0]["unusable"] == 4
    assert "not ready yet" in system.cli("nodes", "unfence", node, who="admin").stdout
    assert system.cli("nodes", "unfence", node, who="admin").returncode == 4
    assert system.cli("nodes", "fence", "nowhere", "--yes", who="admin").returncode == 3


def test_a_node_is_cordoned_and_that_is_on_record(system: System) -> None:
    node = node_of(system)
    assert system.cli("nodes", "cordon", node).returncode == 6
    done = system.cli("nodes", "cordon", node, "--reason", "A fan is loud.", who="admin")
    assert (done.returncode, f"gpu-dev nodes uncordon {node}" in done.stdout) == (0, True), done.stderr
    assert "Cordoned by an administrator (admin: A fan is loud.)" in system.cli("nodes").stdout
    refused = system.cli("book", "create", "-g", "1", "-s", "now", "-d", "1h")
    assert (refused.returncode, "cordoned by an administrator" in refused.stderr) == (4, True)
    assert (
        system.cli("nodes", "uncordon", node, who="admin").stdout
        == f"{node} is not cordoned any more: new jobs may start there\n"
    )
    lines = system.cli("audit", "--subject", node, "--actor", "admin", who="admin").stdout.splitlines()
    assert [line.split()[7:10] for line in lines[1:]] == [["node", done, node] for done in ("uncordoned", "cordoned")]
    both = system.cli("audit", "--kind", "node_cordoned", "--kind", "node_uncordoned", "-o", "json", who="admin")
    assert [event["data"] for event in json.loads(both.stdout)["items"]] == [{}, {"reason": "A fan is loud."}]
    assert "Only the newest 1 are shown" in system.cli("audit", "--limit", "1", who="admin").stderr
    oldest = system.cli("audit", "--subject", node, "--actor", "admin", "--oldest-first", "--limit", "1", who="admin")
    assert oldest.stdout.splitlines()[1].split()[7:9] == ["node", "cordoned"]
    assert "Only the oldest 1 are shown" in oldest.stderr
    assert system.cli("audit").returncode == 6
    assert "No" in system.cli("audit", "--subject", "user:alice").stdout


def test_the_audit_log_is_exported_and_checked(system: System, tmp_path: Path, run_sql) -> None:
    run_sql(
        "INSERT INTO events (at, actor, kind, subject) "
        "SELECT now(), 'ada', 'node_fenced', 'node-' || n FROM generate_series(1, 1234) n"
    )
    eventually_sync(lambda: "not chained yet" not in system.cli("audit", "verify", who="admin").stdout)
    exported = system.cli("audit", "export", "--to", "2100-01-01T00:00Z", who="admin")
    assert exported.returncode == 0, exported.stderr
    lines = [json.loads(line) for line in exported.stdout.splitlines()]
    subjects = [line["event"]["subject"] for line in lines if line["event"]["actor"] == "ada"]
    assert subjects == [f"node-{n}" for n in range(1, 1235)]
    noted = exported.stderr.split()[-1]
    assert noted == f"{lines[-1]['position']}:{lines[-1]['digest']}"
    folder = tmp_path / "exported"
    folder.mkdir()
    file, rest = folder / "first.jsonl", folder / "rest.jsonl"
    assert " lines are in" in system.cli("audit", "export", "--file", str(file), who="admin").stderr
    assert file.read_text().startswith(exported.stdout)
    # Two files are one chain; no server is asked for it.
    whole = file.read_text().splitlines(keepends=True)
    file.write_text("".join(whole[:700]))
    rest.write_text("".join(whole[700:]))
    alone = {"GPU_DEV_SERVER": "http://127.0.0.1:9"}
    checked = system.cli("audit", "verify", str(file), str(rest), "--noted", noted, **alone)
    assert (checked.returncode, "The chain is whole." in checked.stdout) == (0, True), checked.stderr
    backwards = system.cli("audit", "verify", str(rest), str(file), **alone)
    assert (backwards.returncode, "comes after position" in backwards.stdout) == (4, True)
    rest.write_text("".join(whole[700:]).replace("node-1200", "node-1201"))
    changed = system.cli("audit", "verify", str(rest), **alone)
    assert (changed.returncode, "is not as it was chained" in changed.stdout) == (4, True)
    rest.write_text("nothing\n")
    assert "Line 1 of" in system.cli("audit", "verify", str(rest), **alone).stderr
    assert system.cli("audit", "verify", str(folder / "none"), **alone).returncode == 2
    assert system.cli("audit", "verify", "--noted", "7", **alone).returncode == 2
    # In the server's own log, too.
    assert system.cli("audit", "verify", "--noted", noted, who="admin").returncode == 0
    run_sql("ALTER TABLE events DISABLE TRIGGER USER")
    run_sql("UPDATE events SET actor = 'eve' WHERE subject = 'node-77'")
    run_sql("ALTER TABLE events ENABLE TRIGGER USER")
    changed = system.cli("audit", "verify", who="admin")
    assert (changed.returncode, changed.stdout.count("is not as it was chained")) == (4, 1)
    assert "The audit log was changed" in changed.stderr
    for file in folder.iterdir():
        file.unlink()
    refused = system.cli("audit", "export", "--file", str(folder / "mine.jsonl"))
    assert (refused.returncode, list(folder.iterdir())) == (6, [])
    assert system.cli("audit", "verify").returncode == 6


def test_unknown_pods_are_listed_and_ended(system: System, run_sql) -> None:
    """A job whose row was lost: its pod goes on until somebody says that it is to end."""
    job_id = system.cli("submit", "-g", "1", "-d", "10m", "--", "sleep", "600").stdout.strip()
    assert system.cli("pods").returncode == 6
    assert system.cli("pods", who="admin").stdout.startswith("No unknown pods")
    eventually_sync(lambda: json.loads(system.cli("show", job_id, "-o", "json").stdout)["status"] == "running")
    # All at once: the processor must see neither a job without GPUs nor add an event to one that is about to go.
    run_sql(
        f"SELECT FROM reservations WHERE id = '{job_id}' FOR UPDATE",
        "ALTER TABLE events DISABLE TRIGGER USER",
        f"DELETE FROM allocations WHERE reservation_id = '{job_id}'",
        f"DELETE FROM events WHERE reservation_id = '{job_id}'",
        f"DELETE FROM reservations WHERE id = '{job_id}'",
        "ALTER TABLE events ENABLE TRIGGER USER",
    )
    eventually_sync(lambda: system.cli("pods", "-o", "name", who="admin").stdout == f"{job_id}-1-0\n")
    assert json.loads(system.cli("gpus", "-o", "json").stdout)["items"][0]["free"] == 3
    unasked = system.cli("pods", "end", f"{job_id}-1-0", who="admin")
    assert (unasked.returncode, "pods end" in unasked.stderr) == (2, True)
    ended = system.cli("pods", "end", f"{job_id}-1-0", "--yes", who="admin")
    assert ended.stdout == f"{job_id}-1-0: will be ended\n", ended.stderr
    eventually_sync(lambda: system.cli("pods", who="admin").stdout.startswith("No unknown pods"))
    assert json.loads(system.cli("gpus", "-o", "json").stdout)["items"][0]["free"] == 4
    assert system.cli("pods", "end", f"{job_id}-1-0", "--yes", who="admin").returncode == 3


@pytest.mark.parametrize(("answer", "done"), [("y", True), ("", False), ("n", False)])
def test_at_a_terminal_it_is_asked(system: System, run_sql, answer: str, done: bool) -> None:
    node = node_of(system)
    run_sql("UPDATE nodes SET ready = false")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpu_dev", "nodes", "fence", node],
        env={**system.environment("admin"), "TERM": "xterm"},
        cwd=ROOT,
        stdin=slave,
        stderr=slave,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(slave)
    os.set_blocking(master, False)
    shown = ""

    def asked() -> bool:
        nonlocal shown
        with suppress(OSError):
            shown += os.read(master, 4096).decode(errors="replace")
        return "switched off" in shown

    eventually_sync(asked)
    os.write(master, f"{answer}\n".encode())
    out, _ = process.communicate(timeout=PATIENCE_S)
    os.close(master)
    assert (process.returncode == 0, "is fenced" in out) == (done, done)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (("nodes", "fence", "nowhere"), "There is no node 'nowhere'."),
        (("pods", "end", "nothing"), "There is no unknown pod 'nothing'."),
        (("users", "disable", "alic"), "There is no user 'alic'. Did you mean alice?"),
        (("projects", "end", "nothing"), "There is no project 'nothing'."),
    ],
)
def test_what_there_is_not_is_said_before_it_is_asked(system: System, command: tuple[str, ...], error: str) -> None:
    done = system.cli(*command, who="admin")
    assert (done.returncode, error in done.stderr, "confirm" in done.stderr) == (3, True, False), done.stderr


def test_the_members_of_a_new_project_are_asked_for_by_name(system: System, run_sql) -> None:
    run_sql(
        "INSERT INTO users (name, role, created_at) SELECT 'aaa' || n, 'user', now() FROM generate_series(1, 10001) n"
    )
    refused = system.cli("projects", "create", "vision", "--member", "bob", "--member", "bobb", who="admin")
    assert (refused.returncode, "There is no user 'bobb'." in refused.stderr) == (3, True), refused
    assert system.cli("projects", "create", "vision", "--member", "bob").returncode == 6
    made = system.cli("projects", "create", "vision", "--member", "bob", "--member", "me", "-o", "json", who="admin")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["members"] == ["admin", "bob"]
