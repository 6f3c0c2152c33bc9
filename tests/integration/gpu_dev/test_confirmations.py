"""Commands that destroy more than they name, or what nobody can make again, name what is lost and ask first."""

import os
import re

import pytest

from tests.integration.gpu_dev.conftest import System
from tests.integration.gpu_dev.test_at_a_terminal import AtTerminal
from tests.waiting import PATIENCE_S

DAILY = ("-s", "tomorrow 9am", "-d", "1h", "--rrule", "FREQ=DAILY;COUNT=4", "--title", "runs")


def ids(text: str) -> list[str]:
    """The ids of tokens in an output."""
    return re.findall(r"\btok-\w+", text)


def declined(system: System, *words: str, asks: tuple[str, ...], who: str = "alice", **environment: str) -> None:
    """A command asks at a terminal for each of `asks`, does nothing on `n`, and is refused without a terminal."""
    unasked = system.cli(*words, who=who, **environment)
    assert (unasked.returncode, "Add --yes to run it without a terminal." in unasked.stderr) == (2, True), unasked
    at = AtTerminal(system, *words, who=who)
    for text in asks:
        at.shows(text)
    at.shows("[y/N]")
    at.answer("n\n")
    at.shows("Nothing was done.")
    assert at.process.wait(PATIENCE_S) == 1
    at.process.communicate()
    os.close(at.master)


def test_tokens(system: System) -> None:
    made = system.cli("tokens", "create", "--name", "laptop")
    secret = made.stdout.strip()
    [laptop] = ids(made.stderr)
    [cron] = ids(system.cli("tokens", "create", "--name", "cron", GPU_DEV_TOKEN=secret).stderr)
    question = f"Revoke laptop ({laptop})? Programs that use it are refused at once, and browser sessions end."
    declined(system, "tokens", "revoke", "laptop", asks=(question, f"made with it are revoked, too: cron ({cron})."))
    declined(
        system,
        "tokens",
        "revoke",
        "--all",
        asks=(
            "Revoke all of your tokens and browser sessions, and your calendar address?",
            "The token in use and those that it was made with stay.",
        ),
    )
    declined(system, "tokens", "revoke", "--all", "--user", "alice", asks=("Revoke all of alice's ",), who="admin")
    nobody = system.cli("tokens", "revoke", "--all", "--user", "alicia", who="admin")
    assert (nobody.returncode, "Did you mean alice?" in nobody.stderr) == (3, True)
    done = system.cli("tokens", "revoke", "laptop", "--yes")
    assert done.stdout == f"{laptop} revoked\n", done.stderr
    assert system.cli("users", "me", GPU_DEV_TOKEN=secret).returncode != 0


def test_all_jobs(system: System) -> None:
    assert "None of your jobs waits or runs." in system.cli("cancel", "--all").stderr
    assert system.cli("cancel").returncode == system.cli("cancel", "--all", "job-1").returncode == 2
    others = system.cli("submit", "-g1", "-d1h", "--", "sleep", "99", who="admin").stdout.strip()
    one, two = (system.cli("submit", "-g1", "-d1h", "-n", name, "--", "sleep", "99").stdout.strip() for name in "ab")
    declined(system, "cancel", "--all", asks=(f"Cancel 2 jobs: b ({two}), a ({one})? Running jobs end.",))
    done = system.cli("cancel", "--all", "--yes")
    assert (done.returncode, one in done.stdout, two in done.stdout) == (0, True, True), done
    assert system.cli("list", "-o", "name", who="admin").stdout.split()[-1] == others


def test_rules(system: System) -> None:
    assert system.cli("policy", "set", "user:alice", "max_gpus=4", "max_duration=7d", who="admin").returncode == 0
    question = "Delete the rules of user:alice: max_gpus=4, max_duration=7d?"
    declined(system, "policy", "remove", "user:alice", asks=(question,), who="admin")
    assert "max_gpus=4" in system.cli("policy", "show", "user:alice", who="admin").stdout
    assert system.cli("policy", "remove", "user:bob", who="admin").returncode == 3


def test_secrets(system: System) -> None:
    for name in ("HF_TOKEN", "deploy-key"):
        assert system.cli("secret", "set", name, stdin="x").returncode == 0
    question = "Delete HF_TOKEN, deploy-key? Nobody can bring a value back"
    declined(system, "secret", "delete", "HF_TOKEN", "deploy-key", asks=(question,))
    mistyped = system.cli("secret", "delete", "HF_TOKNE")
    assert (mistyped.returncode, "Did you mean HF_TOKEN?" in mistyped.stderr) == (3, True)
    assert len(system.cli("secret", "list", "-o", "name").stdout.splitlines()) == 2


def test_dates_of_a_series(system: System) -> None:
    made = system.cli("book", "create", "-g", "1", *DAILY)
    second = made.stdout.splitlines()[2].split()[0]
    declined(system, "book", "cancel", "runs", "--series", asks=("Cancel 4 dates of runs, ", "jobs in them end."))
    declined(system, "book", "cancel", second, "--following", asks=("Cancel 3 dates of runs, ",))
    assert len(system.cli("book", "list", "-o", "name").stdout.splitlines()) == 4
    over = system.cli("book", "cancel", second, "--following", "--yes")
    assert len(over.stdout.splitlines()) == 3, over.stderr
    left = system.cli("book", "list", "--status", "confirmed")
    assert (len(left.stdout.splitlines()), "booked" in left.stdout, "confirmed" in left.stdout) == (2, True, False)


@pytest.mark.parametrize(
    "command",
    [
        *("keys remove desk", "keys remove key-zzzz9999", "notify remove chat", "notify remove ntg-zzzz9999"),
        *("secret delete x", "tokens revoke tok-zzzz9999", "maintenance cancel mnt-zzzz9999", "nodes fence n9"),
        *("users disable zed", "projects end zed", "pods end zed"),
    ],
)
def test_nothing_is_asked_about_what_is_not_there(system: System, command: str) -> None:
    words = command.split()
    done = system.cli(*words, who="admin")
    assert (done.returncode, words[-1] in done.stderr, "--yes" in done.stderr) == (3, True, False), done.stderr
