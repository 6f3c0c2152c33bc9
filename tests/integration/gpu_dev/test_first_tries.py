"""What people type who use it for the first time, or as they would say it."""

import json
from datetime import datetime, timedelta

import pytest

from tests.integration.gpu_dev.conftest import System
from tests.waiting import PATIENCE_S, eventually_sync


def test_an_end_that_is_given_alone_is_the_first_after_the_booking_begins(system: System) -> None:
    made = system.cli("book", "create", "-g1", "-s", "mon 9-17", "--title", "runs")
    assert made.returncode == 0, made.stderr
    moved = system.cli("book", "move", "runs", "--end", "18:00")
    assert (moved.returncode, "09:00 to 18:00 UTC" in moved.stdout) == (0, True), moved


def test_where_nothing_is_ever_free_the_search_says_why(system: System) -> None:
    most = system.cli("book", "slots", "-g64", "-d1h")
    assert most.returncode == 2
    assert "It asks for 64 GPUs on one node, and the largest has" in most.stderr
    assert "There is no GPU of type 'h10'" in system.cli("book", "slots", "-g1", "-d1h", "-t", "h10").stderr
    assert "There is no node 'gamma'" in system.cli("book", "slots", "-g1", "-d1h", "--node", "gamma").stderr


def test_the_audit_log_of_a_job_is_found_by_its_name(system: System) -> None:
    job = system.cli("submit", "-g1", "-d1h", "-n", "train", "--", "sleep", "99").stdout.strip()
    for who in ("alice", "admin"):
        found = system.cli("audit", "--subject", "train" if who == "alice" else job, "-o", "json", who=who)
        assert f'"subject": "{job}"' in found.stdout, found
    assert system.cli("audit", "--subject", "nothing").returncode == 3
    unknown = system.cli("audit", "--kind", "foo", who="admin")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "There are no events of the kind 'foo'. `gpu-dev audit` shows what there is." in unknown.stderr
    mistyped = system.cli("audit", "--kind", "node_cordned", who="admin")
    assert (mistyped.returncode, "Did you mean node_cordoned?" in mistyped.stderr) == (2, True)


def test_an_output_that_is_empty_is_said_to_be_so(system: System) -> None:
    quiet = system.cli("run", "-g1", "-d1h", "-n", "quiet", "--", "true")
    assert quiet.returncode == 0, quiet.stderr
    shown = system.cli("logs", "quiet")
    assert (shown.stdout, "printed nothing." in shown.stderr) == ("", True), shown


def test_a_booking_is_not_said_to_start_about_a_time(system: System) -> None:
    said = system.cli("explain", "-g1", "-d1h", "-s", "tomorrow 9am").stdout
    assert said.startswith("Accepted, starts ")
    assert "about" not in said


def test_a_slot_is_explained_as_it_is_booked(system: System) -> None:
    said = system.cli("explain", "-g1", "-s", "tomorrow 9-17", "-z", "UTC")
    assert (said.returncode, " 09:00 " in said.stdout) == (0, True), said
    assert "already says the end" in system.cli("explain", "-g1", "-s", "tomorrow 9-17", "-d", "1h").stderr
    assert "Say for how long" in system.cli("explain", "-g1", "-s", "tomorrow 9am").stderr


def test_a_size_may_be_written_as_it_is_shown(system: System) -> None:
    for name, size in (("a", "1 GiB"), ("b", "1GB"), ("c", "1GiB")):
        made = system.cli("disk", "create", name, "--size", size)
        assert made.returncode == 0, made.stderr


def test_an_administrator_who_names_a_job_of_others_is_told_its_id(system: System) -> None:
    job = system.cli("submit", "-g1", "-d1h", "-n", "train", "--", "sleep", "99").stdout.strip()
    refused = system.cli("cancel", "train", who="admin")
    assert refused.returncode != 0
    assert f"You have no job named train, but others have: {job} of alice. Type an id." in refused.stderr
    assert system.cli("cancel", job, who="admin").returncode == 0


def test_gpus_of_a_cordoned_node_are_not_counted_as_free(system: System) -> None:
    nodes = [line.split()[0] for line in system.cli("nodes", "-o", "name").stdout.splitlines()]
    for node in nodes:
        assert system.cli("nodes", "cordon", node, who="admin").returncode == 0
    for line in system.cli("gpus").stdout.splitlines()[1:]:
        _, total, free, _, _, unusable, *_ = line.split()
        assert (free, unusable) == ("0", total)
    states = [line.split()[3] for line in system.cli("gpus", "--each").stdout.splitlines()[1:]]
    assert states == ["cordoned"] * 4
    assert system.cli("top", "--once").stdout.count(" cordoned") == 4


def test_the_audit_log_of_a_name_is_of_what_has_it(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("gpu_dev.client.GpuDevClient.users")  # there may be a hundred thousand
    [node] = system.cli("nodes", "-o", "name").stdout.split()
    for made in (("users", "add", "carol"), ("projects", "create", "vision")):
        assert system.cli(*made, who="admin").returncode == 0
    for name in ("alice", node):
        assert system.cli("submit", "-g1", "-d1h", "-n", name, "--", "sleep", "99").returncode == 0
    for name, about in (("carol", "user:carol"), ("vision", "project:vision")):
        found = system.cli("audit", "--subject", name, who="admin")
        assert (f"{name} is {about}." in found.stderr, about in found.stdout) == (True, True), found
    own = system.cli("audit", "--subject", "bob", who="bob")
    assert own.returncode == 0, own.stderr
    several = system.cli("audit", "--subject", "alice", who="admin")
    assert (several.returncode, "Several are named alice: user:alice, job-" in several.stderr) == (2, True), several
    fenced = system.cli("audit", "--subject", node, "--kind", "node_fenced", who="admin")
    assert (fenced.returncode, fenced.stdout) == (0, "No event matches.\n"), fenced
    unknown = system.cli("audit", "--subject", "Nobody Here", who="admin")
    assert (unknown.returncode, unknown.stdout) == (0, "No event matches.\n"), unknown


def test_a_clock_time_as_an_end_does_not_cut_a_booking_of_days_short(system: System) -> None:
    made = system.cli("book", "create", "-g1", "-s", "in 1d", "-d", "3d", "--title", "runs")
    assert made.returncode == 0, made.stderr
    last = system.cli("book", "show", "runs", "-o", "json").stdout
    moved = system.cli("book", "move", "runs", "--end", "23:59", "--dry-run")
    assert moved.returncode == 0, moved.stderr
    end = json.loads(last)["end"][:10]
    assert f"{datetime.fromisoformat(end):%a %-d %b %Y} 23:59" in moved.stdout, (end, moved)


def test_a_maintenance_ends_after_it_begins(system: System) -> None:
    [node] = system.cli("nodes", "-o", "name").stdout.split()
    wanted = ("maintenance", "plan", node, "--reason", "new fans", "--dry-run", "-o", "json")
    for times in (("-s", "in 3d", "--end", "23:59"), ("-s", "tomorrow 22-6"), ("--end", "23:59")):
        planned = system.cli(*wanted, *times, who="admin")
        assert planned.returncode == 0, (times, planned.stderr)
        window = json.loads(planned.stdout)
        start, end = (datetime.fromisoformat(window[name]) for name in ("start", "end"))
        assert timedelta(0) < end - start <= timedelta(days=1)
    unended = system.cli(*wanted, "-s", "in 3d", who="admin")
    assert (unended.returncode, "Say for how long" in unended.stderr) == (2, True)


def test_a_series_may_be_asked_for_in_a_word(system: System) -> None:
    booking = ("book", "create", "-g1", "-s", "tomorrow 9-17", "--dry-run", "--rrule")
    for rule in ("daily 3", "Weekly 3", "weekdays 3"):
        made = system.cli(*booking, rule, "-o", "json")
        assert made.returncode == 0, made.stderr
        assert len(json.loads(made.stdout)["items"]) == 3
    asked = system.cli(*booking, "weekly")
    assert (asked.returncode, 'Write --rrule "weekly 8" for 8' in asked.stderr) == (2, True), asked
    unknown = system.cli(*booking, "monthly")
    assert (unknown.returncode, 'Write "daily 5", "weekdays 10", "weekly 8"' in unknown.stderr) == (2, True), unknown


def test_the_type_that_a_job_got_is_shown(system: System) -> None:
    job = system.cli("submit", "-g1", "-d1h", "--", "sleep", "99").stdout.strip()
    eventually_sync(lambda: ":0 (h100)" in system.cli("show", job).stdout)
    assert ":0 (h100)." in system.cli("explain", job).stdout
    asked = system.cli("submit", "-g1", "-d1h", "-t", "h100", "--", "sleep", "99").stdout.strip()
    eventually_sync(lambda: ":1\n" in system.cli("show", asked).stdout)


def test_a_session_that_was_submitted_says_how_to_enter_it(system: System) -> None:
    made = system.cli("submit", "-g1", "-d1h")
    assert made.stderr.splitlines()[-1] == f"Enter it: gpu-dev shell {made.stdout.strip()}"
    eventually_sync(lambda: "is a session" in system.cli("logs", made.stdout.strip()).stderr)
    assert "Enter it" not in system.cli("submit", "-g1", "-d1h", "--", "sleep", "99").stderr


def test_what_no_node_can_run_is_said_to_be_so(system: System) -> None:
    made = system.cli("submit", "-g9", "-d1h", "--", "true")
    assert made.stderr.startswith("It can't start on the nodes that are here. It asks for 9 GPUs on one node"), made
    assert made.stderr.endswith(f"Cancel it: gpu-dev cancel {made.stdout.strip()}\n")


def test_a_session_can_be_rehearsed(system: System) -> None:
    rehearsed = system.cli("dev", "-g1", "-d1h", "--dry-run")
    assert (rehearsed.returncode, rehearsed.stdout.splitlines()[0]) == (0, "Starts now."), rehearsed
    assert "larger_than_any_node" in system.cli("dev", "-g9", "-d1h", "--dry-run").stdout
    assert system.cli("list", "-o", "name").stdout == ""


def test_the_last_lines_of_an_output_are_printed_alone(system: System) -> None:
    counted = system.cli("run", "-g1", "-d1h", "-n", "count", "--", "sh", "-c", "seq 1 100; printf end")
    assert counted.returncode == 0, counted.stderr
    assert system.cli("logs", "count", "--tail", "3").stdout == "99\n100\nend"
    none = system.cli("logs", "count", "-n", "0")
    assert (none.stdout, "printed nothing" in none.stderr) == ("", False)
    assert system.cli("logs", "count", "-f", "-n2").stdout == "100\nend"
    gate = system.folder / "gate"
    script = f"seq 1 9; until [ -e {gate} ]; do sleep 0.1; done; echo last"
    job = system.cli("submit", "-g1", "-d1h", "--", "sh", "-c", script).stdout.strip()
    eventually_sync(lambda: system.cli("logs", job).stdout.endswith("9\n"))
    following = system.begin("logs", job, "-f", "--tail", "2")
    assert following.stdout is not None
    assert [following.stdout.readline() for _ in range(2)] == ["8\n", "9\n"]
    gate.touch()
    assert following.communicate(timeout=PATIENCE_S)[0] == "last\n"


def test_a_value_that_was_mistyped_is_answered_with_the_one_that_was_meant(system: System) -> None:
    for words, meant in (
        (("usage", "--by", "day"), "For figures over time, give --step 1d."),
        (("usage", "--by", "projct"), "Did you mean project?"),
        (("list", "--status", "runing"), "Did you mean running?"),
        (("list", "--status", "waiting"), "Did you mean queued?"),
        (("tokens", "create", "--for", "1h"), "Did you mean --expires-in?"),
    ):
        refused = " ".join(system.cli(*words, COLUMNS="300").stderr.split())
        assert meant in refused, refused


def test_a_title_that_was_mistyped_is_answered_with_the_one_that_was_meant(system: System) -> None:
    made = system.cli("book", "create", "-g1", "-s", "mon 9-17", "--title", "weekly", "--rrule", "weekly 2")
    assert made.returncode == 0, made.stderr
    assert "Did you mean weekly?" in system.cli("book", "show", "wekly").stderr
    assert "To cancel all dates of a series, add --series." in system.cli("book", "cancel", "weekly").stderr


def test_a_name_that_was_mistyped_is_answered_with_the_one_that_was_meant(system: System) -> None:
    [node] = system.cli("nodes", "-o", "name").stdout.split()
    for name, who in (("data", "alice"), ("dune", "bob")):
        assert system.cli("disk", "create", name, "--size", "1Gi", who=who).returncode == 0
    (system.folder / "token").write_text("x")
    assert system.cli("secret", "set", "HF_TOKEN", "--from-file", str(system.folder / "token")).returncode == 0
    assert system.cli("projects", "create", "vision", who="admin").returncode == 0
    run = ("run", "-g1", "-d1h")
    for words, who, meant in (
        (("disk", "show", "dta"), "alice", "data"),
        (("disk", "resize", "dta", "2Gi"), "alice", "data"),
        (("disk", "show", "dat", "--user", "alice"), "admin", "data"),
        (("disk", "show", "data", "--user", "alic"), "admin", "alice"),
        ((*run, "--disk", "dta", "--", "true"), "alice", "data"),
        (("secret", "delete", "HF_TOKN", "--yes"), "alice", "HF_TOKEN"),
        ((*run, "--secret", "HF_TOKN", "--", "true"), "alice", "HF_TOKEN"),
        (("projects", "end", "visoin", "--yes"), "admin", "vision"),
        (("projects", "add", "vision", "alic"), "admin", "alice"),
        (("policy", "set", "user:alic", "max_gpus=1"), "admin", "alice"),
        (("users", "enable", "alic"), "admin", "alice"),
        (("nodes", "cordon", f"{node}x"), "admin", node),
        (("book", "create", "-g1", "-s", "tomorrow 9-17", "--node", f"{node}x"), "alice", node),
    ):
        refused = " ".join(system.cli(*words, who=who, COLUMNS="300").stderr.split())
        assert f"Did you mean {meant}?" in refused, (words, refused)
    others = system.cli("disk", "show", "dun").stderr  # bob's is not alice's to see
    assert ("no disk dun" in others, "Did you mean" in others) == (True, False), others


def test_another_reason_of_a_cordon_replaces_the_former(system: System) -> None:
    [node] = system.cli("nodes", "-o", "name").stdout.split()
    for reason in ((), ("--reason", "a fan is loud"), ()):
        assert system.cli("nodes", "cordon", node, *reason, who="admin").returncode == 0
    assert "a fan is loud" in system.cli("nodes").stdout
    noted = system.cli("audit", "--subject", node, "--kind", "node_cordoned", "-o", "json", who="admin")
    assert len(json.loads(noted.stdout)["items"]) == 2
    assert system.cli("policy", "set", "gpu_type:h200", "max_gpus=3", who="admin").returncode == 0
    elsewhere = system.cli("book", "slots", "-g1", "-d1h", "-t", "h200", "--node", node)
    assert (elsewhere.returncode, "There is no GPU of type 'h200' on" in elsewhere.stderr) == (2, True), elsewhere
    quarantined = system.cli("nodes", "quarantine", f"{node}:1", who="admin")
    assert quarantined.returncode == 0, quarantined.stderr


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("notify", "add", "email", "ada"), "error: An e-mail address must be plain, such as ada@example.org."),
        (("tokens", "create", "--gpu-hours", "5", "--until", "2020-01-01"), "error: --until is "),
        (("tokens", "revoke", "tok-nothing"), "error: There is no token 'tok-nothing'."),
        (("keys", "add", "ssh-ed25519 AAAA ada@laptop"), "error: This is a key, not a file. Name its file, or "),
        (("policy", "set", "project:visio", "max_gpus=1"), "There is no project 'visio'. Did you mean vision?"),
        (("maintenance", "plan", "alfa", "--for", "1h", "--reason", "fans"), "There is no node 'alfa'."),
        (("book", "list", "--user", "bob"), "No booking of bob matches."),
    ],
)
def test_slips_are_answered_with_what_was_typed_and_what_is_meant(
    system: System, typed: tuple[str, ...], answer: str
) -> None:
    if "project:visio" in typed:
        system.cli("projects", "create", "vision", who="admin")
    tried = system.cli(*typed, who="admin")
    assert answer in tried.stderr + tried.stdout, tried
