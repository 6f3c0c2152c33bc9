"""The command line against the real system: real HTTP, real database, real processes with simulated cards."""

import json
import re
import signal
from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.gpu_dev.conftest import System
from tests.waiting import PATIENCE_S, eventually_sync

CARDS = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'].count(',') + 1, 'cards')"


def test_it_is_a_program(system: System) -> None:
    ran = system.begin("run", "-g", "1", "-d", "1m", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    out, err = ran.communicate(timeout=PATIENCE_S)
    assert (ran.returncode, out) == (3, "out\nerr\n"), err


def status_of(system: System, job_id: str) -> str:
    return json.loads(system.cli("show", job_id, "-o", "json").stdout)["status"]


def test_run_prints_the_output_and_ends_with_the_jobs_code(system: System) -> None:
    ran = system.cli(
        "run", "--gpus", "2", "--type", "H100", "--for", "5m", "--env", "GREETING=hello there", "--", "python3", "-c",
        f"{CARDS}; print(os.environ['GREETING']); raise SystemExit(7)",
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (7, "2 cards\nhello there\n"), ran.stderr
    assert ran.stderr.count("(command_failed: ") == 1, "told as it ends, or has ended"
    ok = system.cli("run", "-g", "1", "-d", "1m", "true", "--not-ours")
    assert (ok.returncode, ok.stdout) == (0, ""), ok.stderr


def test_submit_wait_and_look_at_it(system: System) -> None:
    made = system.cli("submit", "--gpus", "1", "--for", "PT5M", "--name", "nap", "--wait", "--", "false")
    assert made.returncode == 1
    job_id = made.stdout.strip()
    listed = system.cli("list", "--all", "-o", "name")
    assert listed.stdout.split() == [job_id]
    assert system.cli("list").stdout.startswith("No jobs wait or run.")
    shown = json.loads(system.cli("show", job_id[4:9], "-o", "json").stdout)
    assert (shown["id"], shown["status"], shown["exit_code"], shown["duration"]) == (job_id, "failed", 1, "PT5M")
    events = json.loads(system.cli("events", job_id, "-o", "json").stdout)["items"]
    assert [events[0]["kind"], events[-1]["after"]] == ["submitted", "failed"]
    followed = [json.loads(line) for line in system.cli("events", job_id, "-f", "-o", "json").stdout.splitlines()]
    assert followed == events
    asked = system.cli("submit", "--json-file", "-", stdin='{"gpus":1,"duration":60,"workload":{"command":["true"]}}')
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith("job-")


def test_who_waits_is_told_why_and_can_leave(system: System) -> None:
    holding = system.cli("submit", "-g", "4", "-d", "10m", "--", "sleep", "600").stdout.strip()
    eventually_sync(lambda: status_of(system, holding) == "running")
    submitted = system.cli("submit", "-g", "3", "-d", "1h", "--", "true")
    waiting = submitted.stdout.strip()
    assert re.fullmatch(r"job-\w+\n", submitted.stdout)
    assert re.fullmatch(r"Waits for 3 GPUs until about \w+ \d+ \w+ 20[\d :]+ UTC\.\n", submitted.stderr)
    larger = system.cli("submit", "-g", "1", "-N", "9", "-d", "1h", "-o", "json", "--", "true")
    assert json.loads(larger.stdout)["nodes"] == 9
    assert larger.stderr.startswith("It can't start on the nodes that are here. It asks for 9 nodes")
    assert larger.stderr.count("\n") == 1
    assert system.cli("cancel", json.loads(larger.stdout)["id"]).returncode == 0
    for words in (
        ["submit", "-g", "1", "-d", "1h"],
        ["run", "-g", "1", "-d", "1h"],
        ["explain", "-g", "1", "-d", "1h"],
    ):
        ahead = system.cli(*words, *(["--dry-run", "--", "true"] if words[0] != "explain" else []))
        assert ahead.returncode == 0, ahead.stderr
        accepted = r"Accepted, starts about \w+ \d+ \w+ 20[\d :]+ UTC, because:\n  - waiting_for_gpus: "
        assert re.match(accepted, ahead.stdout)
    for words in (["submit", "-g", "1", "-d", "1h"], ["run", "-g", "1", "-d", "1h"]):
        tested = system.cli(*words, "--test-only", "--", "true")
        assert tested.returncode == 0, tested.stderr
        promised = r"Would start by \w+ \d+ \w+ 20[\d :]+ UTC at the latest\.\n"
        promised += r"Likely start: not known yet\.\nPlace in the queue for any type: 1\.\nReason: "
        assert re.match(promised, tested.stdout)
    tested = system.cli("submit", "-g", "1", "-d", "1h", "--test-only", "-o", "json", "--", "true")
    assert json.loads(tested.stdout)["verdict"] == "accepted"
    for flag in ((), ("--test-only",)):
        beyond = system.cli("submit", "-g", "1", "-d", "60d", *flag, "--", "true")
        assert (beyond.returncode, beyond.stdout) == (4, "")
        assert "at most" in beyond.stderr
    refused = system.cli("submit", "-g", "1", "-d", "60d", "--dry-run", "-o", "json", "--", "true")
    assert (refused.returncode, json.loads(refused.stdout)["verdict"]) == (4, "refused")
    timed = system.cli("submit", "-g", "1", "-d", "4h", "--wait", "--timeout", "1s", "--", "true")
    assert timed.returncode == 124
    assert f"try: gpu-dev show {timed.stdout.strip()}" in timed.stderr

    def explained() -> bool:
        said = json.loads(system.cli("explain", waiting, "-o", "json").stdout)
        return bool(said["job"]["estimated_start_at"]) and said["job"]["queue_position"] == 1

    eventually_sync(explained)
    text = system.cli("explain", waiting).stdout
    assert "Place in the queue for any type: 1." in text
    assert "What would help:" in text
    # A smaller one goes before both, and the table is by place.
    smaller = system.cli("submit", "-g", "1", "-d", "30m", "--", "true").stdout.strip()
    places = [("1", smaller), ("2", waiting), ("3", timed.stdout.strip())]
    eventually_sync(lambda: re.findall(r"^ *(\d+)  (job-\w+)", system.cli("queue").stdout, re.MULTILINE) == places)
    cut = system.cli("queue", "--limit", "2").stdout
    assert "Only the first 2 by priority and arrival are shown, and others may start before them; more" in cut
    assert "more with --limit" not in system.cli("queue", "--limit", "3").stdout
    assert system.cli("cancel", smaller).returncode == 0
    queue = json.loads(system.cli("queue", "-o", "json").stdout)
    assert [one["id"] for one in queue["items"]] == [waiting, timed.stdout.strip()]
    assert queue["totals"] == [{"gpu_type": None, "jobs": 2, "gpus": 4}]
    [kind] = json.loads(system.cli("gpus", "-o", "json").stdout)["items"]
    assert (kind["gpu_type"], kind["total"], kind["free"], kind["held"]) == ("h100", 4, 0, 4)
    assert kind["next_free_at"]
    assert len(system.cli("gpus", "--each", "-o", "name").stdout.splitlines()) == 4
    assert "(alice)" in system.cli("gpus", "--each", who="bob").stdout
    refused = system.cli("extend", holding, "--by", "30m")
    assert refused.returncode == 4
    assert waiting in refused.stderr
    ended = system.cli("cancel", waiting, "zzzzzzzz", timed.stdout.strip())
    assert ended.returncode == 3
    assert "zzzzzzzz" in ended.stderr
    extended = system.cli("extend", holding, "--by", "30m")
    assert "now lasts 40m" in extended.stdout, extended.stderr
    assert system.cli("cancel", holding).returncode == 0
    eventually_sync(lambda: status_of(system, holding) == "cancelled")
    assert status_of(system, waiting) == "cancelled"
    again = system.cli("cancel", waiting)
    assert again.returncode == 4
    assert "already ended" in again.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"])
def test_stopping_run_off_a_terminal_cancels_the_job(system: System, number: int, code: int) -> None:
    going = system.begin("run", "-g", "1", "-d", "10m", "--", "sh", "-c", "echo up; sleep 600")
    assert going.stdout is not None
    assert going.stdout.readline() == "up\n"
    going.send_signal(number)
    assert going.wait(PATIENCE_S) == code
    [job_id] = system.cli("list", "--all", "-o", "name").stdout.split()
    eventually_sync(lambda: status_of(system, job_id) == "cancelled")


def test_run_can_be_told_to_detach(system: System) -> None:
    going = system.begin(
        "run", "-g", "1", "-d", "10m", "--on-interrupt", "detach", "--", "sh", "-c", "echo up; sleep 600"
    )
    assert going.stdout is not None
    assert going.stdout.readline() == "up\n"
    going.send_signal(signal.SIGINT)
    assert going.wait(PATIENCE_S) == 130
    [job_id] = system.cli("list", "-o", "name").stdout.split()
    assert status_of(system, job_id) == "running"
    assert system.cli("logs", job_id).stdout == "up\n"
    following = system.begin("logs", "-f", job_id)
    assert following.stdout is not None
    assert following.stdout.readline() == "up\n"
    assert system.cli("cancel", job_id).returncode == 0
    assert following.wait(PATIENCE_S) == 0


def test_what_belongs_to_others_is_not_there(system: System) -> None:
    job_id = system.cli("submit", "-g", "1", "-d", "1m", "--", "true").stdout.strip()
    for words in (["show"], ["logs"], ["logs", "-f"], ["events"], ["cancel"], ["explain"], ["extend", "--by", "1h"]):
        asked = system.cli(*words, job_id, who="bob")
        assert (asked.returncode, asked.stdout) == (3, ""), words
        assert "`gpu-dev list` shows your jobs" in asked.stderr
    assert system.cli("show", job_id, who="admin").returncode == 0


def test_people_and_tokens(system: System) -> None:
    assert "carol added" in system.cli("users", "add", "carol", who="admin").stdout
    made = system.cli("tokens", "create", "--user", "carol", "--name", "laptop", "--expires-in", "30d", who="admin")
    token = made.stdout.strip()
    assert made.returncode == 0
    me = system.cli("users", "me", "-o", "json", GPU_DEV_TOKEN=token)
    assert json.loads(me.stdout)["name"] == "carol"
    [listed] = json.loads(system.cli("tokens", "list", "-o", "json", GPU_DEV_TOKEN=token).stdout)["items"]
    assert (listed["name"], "token" in listed) == ("laptop", False)
    assert system.cli("tokens", "revoke", listed["id"], "--yes", GPU_DEV_TOKEN=token).returncode == 0
    refused = system.cli("users", "me", GPU_DEV_TOKEN=token)
    assert (refused.returncode, token in refused.stderr) == (6, False)
    assert "try: unset GPU_DEV_TOKEN; gpu-dev login" in refused.stderr
    assert system.cli("users", "list").returncode == 6
    assert system.cli("users", "add", "Carol!", who="admin").returncode == 2
    unasked = system.cli("users", "disable", "carol", who="admin")
    assert (unasked.returncode, "try: gpu-dev users disable carol --yes" in unasked.stderr) == (2, True)
    ended = system.cli("users", "disable", "carol", "--yes", who="admin")
    assert (ended.returncode, ended.stdout) == (0, "carol is disabled\n")
    again = system.cli("users", "disable", "carol", who="admin")
    assert (again.returncode, again.stdout) == (0, "carol is disabled\n"), "there is nothing to ask about"


def test_who_is_disabled_leaves_what_is_listed_and_one_command_ends_it(system: System) -> None:
    assert system.cli("users", "add", "dora", who="admin").returncode == 0
    token = system.cli("tokens", "create", "--user", "dora", who="admin").stdout.strip()
    start = f"{datetime.now(UTC) + timedelta(days=300):%Y-%m-%dT%H:00:00Z}"
    booked = system.cli("book", "create", "-g", "1", "-s", start, "-d", "1h", "-o", "json", GPU_DEV_TOKEN=token)
    assert booked.returncode == 0, booked.stderr
    booking = json.loads(booked.stdout)["id"]
    disabled = system.cli("users", "disable", "dora", "--yes", who="admin")
    assert disabled.returncode == 0, disabled.stderr
    assert "Left: 1" in disabled.stdout
    assert ("booked" in disabled.stdout, "confirmed" in disabled.stdout) == (True, False)
    assert booking in disabled.stdout
    assert "gpu-dev users disable dora --end" in disabled.stdout
    unasked = system.cli("users", "disable", "dora", "--end", who="admin")
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    ended = system.cli("users", "disable", "dora", "--end", "--yes", who="admin")
    assert (ended.returncode, ended.stdout) == (0, "dora is disabled; jobs, bookings and requests cancelled: 1\n")


def test_what_waits_is_not_cancelled_with_a_user_without_a_word(system: System) -> None:
    assert system.cli("users", "add", "emil", who="admin").returncode == 0
    token = system.cli("tokens", "create", "--user", "emil", who="admin").stdout.strip()
    for _ in range(2):
        made = system.cli("submit", "-g", "64", "-d", "1h", "--", "true", GPU_DEV_TOKEN=token)
        assert made.returncode == 0, made.stderr
    unasked = system.cli("users", "disable", "emil", who="admin")
    assert (unasked.returncode, "gpu-dev users disable emil --yes" in unasked.stderr) == (2, True)
    waiting = json.loads(system.cli("list", "-o", "json", GPU_DEV_TOKEN=token).stdout)["items"]
    assert [job["status"] for job in waiting] == ["queued"] * 2
    done = system.cli("users", "disable", "emil", "--yes", who="admin")
    assert (done.returncode, done.stdout) == (0, "emil is disabled; waiting jobs and requests cancelled: 2\n")


def test_a_name_stands_for_ones_own_job(system: System) -> None:
    first = system.cli("submit", "-g", "1", "-d", "5m", "-n", "train net", "--", "true").stdout.strip()
    assert system.cli("submit", "-g", "1", "-d", "5m", "-n", "train net", "--", "true", who="bob").returncode == 0
    for who in ("alice", "admin"):
        shown = system.cli("show", "train net", "-o", "name", who=who)
        # An administrator sees everybody's jobs, and names are one's own.
        assert (shown.returncode, shown.stdout.strip()) == ((0, first) if who == "alice" else (3, "")), shown.stderr
    held = system.cli("submit", "-g", "4", "-d", "5m", "-n", "resnet50", "--", "sleep", "600").stdout.strip()
    again = system.cli("submit", "-g", "4", "-d", "5m", "-n", "resnet50", "--", "sleep", "600").stdout.strip()
    both = system.cli("cancel", "resnet50")
    assert (both.returncode, held in both.stderr, again in both.stderr) == (2, True, True)
    assert system.cli("cancel", again).returncode == 0
    by_name = system.cli("cancel", "resnet50")
    assert by_name.stdout.startswith(f"{held}: "), by_name.stderr
    assert f"resnet50 is {held}." in by_name.stderr
    nothing = system.cli("show", "no such name")
    assert (nothing.returncode, "nor the name of a job of yours" in nothing.stderr) == (3, True)
    mistyped = system.cli("show", "resnet5O")  # as long as an id
    assert mistyped.returncode == 3
    assert "You have no job with the id or name 'resnet5O'. Did you mean resnet50?" in mistyped.stderr
    assert "job-" not in mistyped.stderr


@pytest.mark.parametrize("command", ["submit", "run"])
def test_a_rehearsal_has_one_answer(system: System, command: str) -> None:
    done = system.cli(command, "-g", "1", "-d", "5m", "--dry-run", "--test-only", "--", "true")
    assert (done.returncode, "Give either --dry-run or --test-only" in done.stderr) == (2, True)
    assert system.cli("submit", "-g", "1", "-d", "5m", "--dry-run", "--wait").returncode == 0


def test_the_last_rule_of_a_scope_is_removed_by_the_command_that_is_shown(system: System) -> None:
    assert system.cli("policy", "set", "user:alice", "max_gpus=4", who="admin").returncode == 0
    none = system.cli("policy", "set", "user:alice", "max_gpus=none", who="admin")
    assert (none.returncode, "try: gpu-dev policy remove user:alice" in none.stderr) == (2, True)
    assert system.cli("policy", "remove", "user:alice", "--yes", who="admin").returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "2"), "Give --for, too, for a new request."),
        (("--for", "1h"), "Name a job, or give --gpus and --for for a new request."),
        (("train", "--for", "1h"), "Give either a job, or the options of a new request."),
        (("train", "--type", "h100"), "Give either a job, or the options of a new request."),
    ],
)
def test_options_of_explain_that_do_not_go_together_are_said(
    unreachable: System, words: tuple[str, ...], said: str
) -> None:
    done = unreachable.cli("explain", *words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_title_stands_for_ones_own_booking_and_a_name_for_a_token(system: System) -> None:
    made = system.cli("book", "create", "-g", "1", "-s", "tomorrow 9-17", "--title", "thesis runs", "-o", "name")
    booking = made.stdout.strip()
    assert system.cli("book", "show", "thesis runs", "-o", "name").stdout.strip() == booking
    assert system.cli("book", "cancel", "thesis runs").stdout == f"{booking}: cancelled\n"
    gone = system.cli("book", "show", "thesis runs")
    assert (gone.returncode, "try: gpu-dev book list" in gone.stderr) == (3, True)
    assert system.cli("tokens", "create", "--name", "laptop").returncode == 0
    assert system.cli("tokens", "revoke", "laptop", who="admin").returncode == 3
    assert "revoked" in system.cli("tokens", "revoke", "laptop", "--yes").stdout


def test_the_status_shows_what_one_has_and_what_ends_soon(system: System) -> None:
    assert "No jobs wait or run" in system.cli("status").stdout
    assert system.cli("policy", "set", "default", "max_gpus=3", who="admin").returncode == 0
    job = system.cli("submit", "-g", "1", "-d", "30m", "--", "sleep", "600").stdout.strip()
    eventually_sync(lambda: "running" in system.cli("show", job).stdout)
    booking = system.cli("book", "create", "-g", "1", "-s", "tomorrow 9-17", "-o", "name").stdout.strip()
    typed = ("-t", "h100", "-g", "2", "-d", "30m", "--", "sleep", "600")
    assert system.cli("submit", *typed).returncode == 0
    rules = {"default": ("max_open_bookings=2", "max_gpu_hours_per_week=20"), "gpu_type:h100": ("max_gpus=2",)}
    for scope, said in rules.items():
        assert system.cli("policy", "set", scope, *said, who="admin").returncode == 0
    eventually_sync(lambda: "gpu_type:h100" in system.cli("status").stdout)
    for words in ([], ["status"]):
        shown = system.cli(*words)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith("alice at ")
        assert booking in shown.stdout
        assert "3 of 2 GPUs at once, over (gpu_type:h100)" in shown.stdout
        assert "1 of 2 open bookings (default)" in shown.stdout
        assert "of 20 GPU-hours in the fullest week (default)" in shown.stdout
        assert f"Longer: gpu-dev extend {job} --by 1h" in shown.stdout
    assert json.loads(system.cli("status", "-o", "json").stdout)["jobs"][-1]["id"] == job
    stranger = system.cli(GPU_DEV_TOKEN="")
    assert (stranger.returncode, "Usage: gpu-dev" in stranger.stdout) == (2, True)
    assert "gpu-dev login" in stranger.stderr


def test_login_checks_the_token_and_keeps_it_private(system: System) -> None:
    alone = {"GPU_DEV_SERVER": "", "GPU_DEV_TOKEN": ""}
    wrong = system.cli("login", system.url, "--token-stdin", stdin="not-a-token\n", **alone)
    assert wrong.returncode == 6
    assert system.cli("list", **alone).returncode in (5, 6)
    right = system.cli("login", system.url, "--token-stdin", stdin=system.tokens["alice"] + "\n", **alone)
    assert "as alice (user)" in right.stdout, right.stderr
    path = system.folder / "config" / "gpu-dev" / "login.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(system.cli("users", "me", "-o", "json", **alone).stdout)["name"] == "alice"
    no_terminal = system.cli("login", system.url, **alone)
    assert (no_terminal.returncode, "--token-stdin" in no_terminal.stderr) == (2, True)
    assert system.cli("logout", **alone).returncode == 0
    assert system.tokens["alice"] not in path.read_text()


def test_dead_letters_are_for_operators(system: System) -> None:
    assert system.cli("queue", "dlq").returncode == 6
    empty = system.cli("queue", "dlq", who="admin")
    assert (empty.returncode, empty.stdout) == (0, "No dead letters: every message could be handled.\n")
    assert system.cli("queue", "dlq", "--all", who="admin").stdout == (
        "gpu_jobs: 0 sent again\npod_operations: 0 sent again\nnotifications: 0 sent again\n"
    )
    gone = system.cli("queue", "dlq", "--redrive", "gpu_jobs/999", who="admin")
    assert "1 of the messages named is no longer there" in gone.stderr


def test_what_the_rules_refuse(system: System) -> None:
    too_long = system.cli("submit", "-g", "1", "-d", "60d", "--", "true")
    assert too_long.returncode == 4
    assert system.cli("submit", "-g", "1", "--priority", "5", "-d", "1h", "--", "true").returncode == 6
    nobody_there = system.cli("list", GPU_DEV_SERVER="http://127.0.0.1:1")
    assert (nobody_there.returncode, "Ask the administrator of this machine" in nobody_there.stderr) == (5, True)
    assert system.cli("nodes", "-o", "yaml").stdout.startswith("items:\n- name: ")


def test_run_again_what_ran_before(system: System) -> None:
    words = ("-g", "1", "-d", "5m", "-n", "again", "-e", "WORD=one", "-e", "OTHER=two")
    first = system.cli("submit", *words, "--", "sh", "-c", "echo $WORD $OTHER").stdout.strip()
    assert system.cli("run", "--again", first).stdout == "one two\n"
    assert system.cli("run", "--again", first, "-e", "WORD=three", "-d", "4m").stdout == "three two\n"
    assert system.cli("run", "--again", first, "--", "sh", "-c", "echo $OTHER").stdout == "two\n"
    missing = system.cli("run", "--again", first, who="admin")
    assert (missing.returncode, "known to the job's owner alone" in missing.stderr) == (2, True)
    assert system.cli("run", "--again", first, "-e", "WORD=a", "-e", "OTHER=b", who="admin").stdout == "a b\n"
    assert system.cli("submit", "--again", first, "--json-file", "-").returncode == 2
    assert system.cli("run", "--again", first, who="bob").returncode == 3
