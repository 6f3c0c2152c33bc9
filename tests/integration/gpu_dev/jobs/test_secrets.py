"""Secrets by the command line, and where none of them is found."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from gpu_dev.client import GpuDevClient
from gpu_dev.server.connection import Connection
from gpu_dev.server.exchange import Exchange
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.domain.sessions.secret_uses import MOST_SECRETS
from tests.database.sql import everything
from tests.integration.gpu_dev.conftest import System
from tests.waiting import eventually_sync

VALUE = "hunter2-in-confidence"
PLANTED = 1000
SHOW = 'echo "$HF_TOKEN" | rev; rev "$GPU_DEV_SECRET_FILES/run/secrets/key"'


def test_secrets_are_set_listed_and_deleted(system: System, tmp_path: Path) -> None:
    done = system.cli("secret", "set", "HF_TOKEN", stdin=f"{VALUE}\n")
    assert (done.returncode, done.stdout) == (0, "HF_TOKEN is set\n"), done.stderr
    (tmp_path / "key").write_text(f"{VALUE}\nmore\n")
    assert system.cli("secret", "set", "deploy-key", "--from-file", str(tmp_path / "key")).returncode == 0
    listed = json.loads(system.cli("secret", "list", "-o", "json").stdout)["items"]
    assert [secret["name"] for secret in listed] == ["HF_TOKEN", "deploy-key"]
    assert VALUE not in system.cli("secret", "list").stdout + str(listed)
    ran = system.cli(
        "run", "-g", "1", "-d", "1m", "--secret", "HF_TOKEN", "--secret", "deploy-key=/run/secrets/key", "--",
        "sh", "-c", SHOW,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, f"{VALUE[::-1]}\n{VALUE[::-1]}\nerom\n"), ran.stderr
    job = json.loads(system.cli("list", "--status", "succeeded", "-o", "json").stdout)["items"][0]["id"]
    shown = system.cli("show", job).stdout
    assert "HF_TOKEN in $HF_TOKEN, deploy-key in /run/secrets/key" in shown
    assert VALUE not in shown
    again = system.cli("run", "--again", job)
    assert (again.returncode, again.stdout) == (0, ran.stdout), again.stderr
    deleted = system.cli("secret", "delete", "HF_TOKEN", "deploy-key", "--yes")
    assert deleted.stdout == "HF_TOKEN is deleted\ndeploy-key is deleted\n"
    assert system.cli("secret", "list").stdout.startswith("No secrets.")
    gone = system.cli("submit", "--again", job)
    assert (gone.returncode, "You have no secret HF_TOKEN or deploy-key." in gone.stderr) == (4, True), gone.stderr


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (("secret", "set", "a b"), VALUE, "can't be a secret's name"),
        (("secret", "set", "a"), "", "The value is empty."),
        (("secret", "set", "a"), f"{VALUE}\0", "without NUL characters"),
        (("secret", "set", "a"), VALUE * 4000, "is text of 1 to 65536 bytes"),
        (("secret", "set", "a", "--from-file", "no-such-file"), "", "can't be read"),
        (("secret", "set", "a", VALUE), "", "Nothing may follow here"),
        (("submit", "-g1", "-d1m", "--secret", "a/b"), "", "can't be a secret's name"),
        (("submit", "-g1", "-d1m", "--secret", "deploy-key"), "", "deploy-key=VARIABLE or deploy-key=/path"),
        (("submit", "-g1", "-d1m", "--secret", "a="), "", "a=VARIABLE or a=/path"),
        (("submit", "-g1", "-d1m", "--secret", "a=CUDA_VISIBLE_DEVICES"), "", "CUDA_VISIBLE_DEVICES is set by"),
        (("submit", "-g1", "-d1m", "--secret", "a", "--secret", "b=a"), "", "the variable a is set twice"),
        (("submit", "-g1", "-d1m", "--secret", "a=/b/../c"), "", "--secret must be an absolute path"),
    ],
)  # fmt: skip
def test_what_is_refused_before_anything_is_sent(
    unreachable: System, words: tuple[str, ...], stdin: str, said: str
) -> None:
    refused = unreachable.cli(*words, stdin=stdin)
    assert refused.returncode == 2
    assert said in " ".join(refused.stderr.split())
    if words[-1] != VALUE:
        assert VALUE not in refused.stdout + refused.stderr


def test_a_secret_that_was_deleted_before_the_start_fails_the_job_with_its_reason(system: System) -> None:
    system.cli("secret", "set", "a", stdin=VALUE)
    holds = system.cli("submit", "-g", "4", "-d", "10m", "--", "sleep", "600").stdout.strip()
    job = system.cli("submit", "-g", "1", "-d", "1m", "--secret", "a", "--", "true").stdout.strip()
    system.cli("secret", "delete", "a", "--yes")
    system.cli("cancel", holds)

    def failed() -> bool:
        return bool(json.loads(system.cli("show", job, "-o", "json").stdout)["status"] == "failed")

    eventually_sync(failed)
    assert "The secret a was deleted before the job started." in system.cli("show", job).stdout


def planted_by_users(system: System) -> dict[str, dict[str, str]]:
    """Random values by name, by user; so many in all."""
    values: dict[str, dict[str, str]] = {"alice": {f"s{number}": uuid4().hex for number in range(MOST_SECRETS)}}
    for number in range(PLANTED // MOST_SECRETS - 1):
        user = f"user{number}"
        assert system.cli("users", "add", user, who="admin").returncode == 0
        created = system.cli("tokens", "create", "--user", user, who="admin")
        system.tokens[user] = created.stdout.split()[-1]
        values[user] = {f"s{number}": uuid4().hex for number in range(MOST_SECRETS)}
    for user, secrets in values.items():
        with GpuDevClient(Exchange(Connection(system.url, system.tokens[user]))) as client:
            for name, value in secrets.items():
                client.secrets.put(name, value)
    return values


async def dump_of(database_url: str) -> str:
    engine = open_engine(database_url, pool=1, application="tests")
    async with engine.connect() as connection:
        dump = await everything(connection)
    await engine.dispose()
    return dump


def texts_of_processes() -> Iterator[str]:
    """The arguments of all processes of this machine."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            yield "\0".join(process.cmdline())


def test_none_of_1000_planted_secrets_is_found_anywhere(
    system: System, database_url: str, tmp_path: Path, server_log: Path
) -> None:
    values = planted_by_users(system)
    planted = [value for secrets in values.values() for value in secrets.values()]
    assert len(set(planted)) == PLANTED
    mine = values["alice"]
    options = [word for number in range(8) for word in ("--secret", f"s{number}=S{number}")]
    options += [word for number in range(8) for word in ("--secret", f"s{number}=/run/{number}")]
    script = 'echo ready; while [ ! -e "$0" ]; do sleep 0.1; done; '
    script += 'for n in 0 1 2 3 4 5 6 7; do rev "$GPU_DEV_SECRET_FILES/run/$n"; echo; done'
    gate = tmp_path / "gate"
    jobs = [
        system.cli("submit", "-g", "1", "-d", "5m", *options, "--", "sh", "-c", script, str(gate)).stdout.strip()
        for _ in range(3)
    ]
    for job in jobs:
        eventually_sync(lambda job=job: system.cli("logs", job).stdout == "ready\n")

    def found_in(text: str) -> list[str]:
        return [value for value in planted if value in text or value.encode().hex() in text]

    # While the jobs run: nothing outside of the pods' own files and environments.
    assert [text for text in texts_of_processes() if found_in(text)] == []
    pods = system.folder / "home" / "pods"
    held = [path for path, text in files_below(system.folder) if found_in(text)]
    assert {path.relative_to(pods).parts[1:3] for path in held} == {("secrets", "files")}
    gate.touch()
    for job in jobs:
        eventually_sync(lambda job=job: '"succeeded"' in system.cli("show", job, "-o", "json").stdout)
        assert system.cli("logs", job).stdout.split()[1:] == [mine[f"s{number}"][::-1] for number in range(8)]
        for command in ("show", "events"):
            assert found_in(system.cli(command, job, "-o", "json").stdout) == []
    assert found_in(system.cli("audit", "-o", "json", "--limit", "5000", who="admin").stdout) == []
    dump = asyncio.run(dump_of(database_url))
    assert dump.count("gpu-dev:sealed:1:") == 2 * PLANTED  # each row in two forms
    assert found_in(dump) == []
    assert found_in(server_log.read_text()) == []
    assert [path for path, text in files_below(system.folder) if found_in(text)] == []


def files_below(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files and what they hold, but for those that go meanwhile."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    yield path, path.read_bytes().decode("latin-1")
