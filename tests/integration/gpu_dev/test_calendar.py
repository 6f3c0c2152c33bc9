"""The calendar on the command line, against a whole system."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from gpu_dev.inputs.machine_zone import local_now
from tests.integration.gpu_dev.conftest import System
from tests.waiting import eventually_sync


def _data(system: System, *words: str, who: str = "alice") -> object:
    done = system.cli(*words, "-o", "json", who=who)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_booking_from_its_making_to_its_end(system: System) -> None:
    wish = ("book", "create", "-g", "4", "-s", "tomorrow 09:00", "-d", "4h", "--title", "thesis")
    assert system.cli(*wish, "--dry-run").stdout.startswith("would be booked: 4 h100 on ")
    made = system.cli(*wish)
    assert made.returncode == 0, made.stderr
    booking_id, status = made.stdout.split()[:2]
    assert status == "booked:"
    assert "4 h100" in made.stdout
    refused = system.cli("book", "create", "-g", "1", "-s", "tomorrow 10:00", "-d", "1h", who="bob")
    assert refused.returncode == 4
    assert "free from" in refused.stderr
    assert "error: 1 GPU is not free" in refused.stderr
    assert refused.stderr.count("1 GPU is not free") == 1
    assert "[no_free_gpus]" in refused.stderr
    assert "Take one of these times" in refused.stderr
    waits = system.cli("book", "create", "-g", "1", "-s", "tomorrow 10:00", "-d", "1h", "--wait", who="bob")
    assert "on the waitlist" in waits.stdout
    [waiting] = _data(system, "book", "waitlist", who="bob")["items"]  # type: ignore[index, call-overload]
    assert waiting["status"] == "waiting"
    for shown in (waits, system.cli("book", "show", waiting["id"], who="bob")):
        assert "not notified of it: you have no notification address. Add one: gpu-dev notify add" in shown.stderr
    for words in (("extend", booking_id, "--by", "1h"), ("move", booking_id, "--end", "tomorrow 14:00")):
        assert "14:00" in system.cli("book", *words, "--dry-run").stdout
    longer = system.cli("book", "extend", booking_id.removeprefix("bkg-"), "--by", "1h")
    assert "14:00" in longer.stdout
    assert "13:00" in system.cli("book", "shorten", booking_id, "--by", "1h").stdout
    assert "give all of it back" in system.cli("book", "shorten", booking_id, "--by", "9h").stderr
    moved = system.cli("book", "move", booking_id, "-s", "tomorrow 18:00", "--title", "the thesis")
    assert "18:00" in moved.stdout
    assert "22:00" in moved.stdout
    [seen] = _data(system, "book", "list", "--all", "--user", "alice", who="bob")["items"]  # type: ignore[index, call-overload]
    assert (seen["user"], seen["title"]) == ("alice", None)
    assert system.cli("book", "show", booking_id, who="bob").returncode == 3
    assert system.cli("book", "cancel", booking_id).stdout == f"{booking_id}: cancelled\n"


def test_series_slots_and_the_timeline(system: System) -> None:
    daily = ("--rrule", "FREQ=DAILY;COUNT=3", "--title", "runs")
    wish = ("book", "create", "-g", "2", "-s", "tomorrow 09:00", "-d", "1h", *daily)
    assert len(_data(system, *wish, "--dry-run")["items"]) == 3  # type: ignore[index, call-overload]
    assert len(system.cli(*wish, "--dry-run").stdout.splitlines()) == 4
    made = system.cli(*wish)
    assert made.returncode == 0, made.stderr
    assert len(made.stdout.splitlines()) == 4
    skipped = system.cli(*wish[:3], "4", *wish[4:], "--skip-conflicts", "--dry-run", "--rrule", "FREQ=DAILY;COUNT=4")
    assert "would be: 1 date\n" in skipped.stdout
    assert len(re.findall(r"^\w{3} \d+ \w{3} \d{4} 09:00 left out: ", skipped.stderr, re.MULTILINE)) == 3
    slots = _data(system, "book", "slots", "-g", "4", "-d", "2h", "--from", "tomorrow 08:30")["items"]  # type: ignore[index, call-overload]
    tomorrow = datetime.now(UTC).date()
    assert slots[0]["start"] > f"{tomorrow}T"
    assert slots[0]["start"].endswith("10:00:00.000Z")
    picture = system.cli("avail", "--from", "tomorrow 08:00", "--to", "tomorrow 12:00").stdout
    assert "4244" in picture
    for words in (["gpus"], ["book", "slots", "-g", "1", "-d", "1h"]):
        mistyped = system.cli(*words, "--type", "h10")
        assert (mistyped.returncode, "Did you mean h100?" in mistyped.stderr) == (2, True)
    unknown = system.cli("avail", "--type", "h200")
    assert (unknown.returncode, "for no type to get any: h100." in unknown.stderr) == (2, True)
    # A job may ask for a type that the policy names, whether or not it is here.
    assert system.cli("policy", "set", "gpu_type:h200", "max_gpus=3", who="admin").returncode == 0
    for words in (["gpus"], ["avail"], ["book", "slots", "-g", "1", "-d", "1h"]):
        none_yet = system.cli(*words, "--type", "H200")
        assert none_yet.returncode == 0, none_yet.stderr
    [kind] = _data(system, "avail", "--from", "tomorrow 08:00", "--to", "tomorrow 12:00")["items"]  # type: ignore[index, call-overload]
    assert kind["free"] == [4, 2, 4, 4]
    first = made.stdout.splitlines()[1].split()[0]
    assert system.cli("book", "cancel", "runs").returncode == 2
    whole = system.cli("book", "cancel", "runs", "--series", "--yes")
    assert (whole.stdout.startswith(first), len(whole.stdout.splitlines())) == (True, 3), whole.stderr
    address = system.cli("book", "feed").stdout.strip()
    assert address.startswith(system.url)
    assert "no address any more" in system.cli("book", "feed", "--drop", "--yes").stderr


def test_a_job_runs_in_a_booking_and_is_counted(system: System) -> None:
    booking_id = system.cli("book", "create", "-g", "2", "-s", "now", "-d", "10m", "--title", "my slot").stdout.split()[
        0
    ]
    ran = system.cli("run", "-g", "1", "-d", "5m", "-b", "my slot", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert (ran.returncode, ran.stdout.strip().isdigit()) == (0, True), ran.stderr
    assert _data(system, "book", "show", booking_id)["jobs"]  # type: ignore[index, call-overload]

    def begun() -> bool:
        return _data(system, "book", "show", booking_id)["status"] == "active"  # type: ignore[index, call-overload, no-any-return]

    # No expiry runs here: the leading processor keeps the calendar.
    eventually_sync(begun)

    def counted() -> bool:
        [line] = _data(system, "usage")["items"]  # type: ignore[index, call-overload]
        return line["key"] == "alice" and line["held_gpu_s"] > line["used_gpu_s"] > 0

    eventually_sync(counted)
    assert system.cli("usage", "-o", "csv").stdout.splitlines()[1].startswith("alice,")
    assert "total" in system.cli("usage", "--by", "gpu_type").stdout
    assert "COST" not in system.cli("usage").stdout
    priced = system.cli("policy", "set", "default", "cost_per_gpu_hour=7200000EUR", who="admin")
    assert (priced.returncode, "no price" in priced.stderr) == (2, True)
    assert system.cli("policy", "set", "default", "cost_per_gpu_hour=720000EUR", who="admin").returncode == 0
    table = system.cli("usage").stdout
    assert re.search(r" COST$", table, re.MULTILINE)
    assert len(re.findall(r"^(?:alice|total) .* [\d,]+\.\d\d EUR$", table, re.MULTILINE)) == 2
    assert system.cli("usage", "-o", "csv").stdout.splitlines()[0].endswith(",cost_EUR,utilised,memory_peak")
    rehearsed = system.cli("explain", "-g", "2", "-d", "30m").stdout
    assert "It costs about 720,000.00 EUR for its whole duration." in rehearsed
    daily = ("-g", "1", "-s", "tomorrow 09:00", "-d", "30m", "--rrule", "FREQ=DAILY;COUNT=3", "--dry-run")
    dates = system.cli("book", "create", *daily).stdout
    assert dates.count(", about 360,000.00 EUR\n") == 3
    assert dates.endswith("together: about 1,080,000.00 EUR\n")
    assert "360,000.00 EUR" in system.cli("book", "create", *daily, "-o", "wide").stdout
    [total] = _data(system, "book", "create", *daily)["costs"]  # type: ignore[index, call-overload]
    assert total == {"amount": "1080000.00", "unit": "EUR"}
    assert "alice" in system.cli("usage", "--step", "1d").stdout
    [steps] = _data(system, "usage", "--step", "1d")["items"]  # type: ignore[index, call-overload]
    assert len(steps["held_gpu_hours"]) == 7
    assert system.cli("usage", "--step", "1d", "-o", "csv").returncode == 2
    nobody = system.cli("submit", "-g", "1", "-d", "5m", "-b", booking_id, "--", "true", who="bob")
    assert nobody.returncode == 4
    many = system.cli("submit", "-g", "9", "-d", "5m", "-b", booking_id, "--", "true")
    assert (many.returncode, f"{booking_id} has no room for 9 GPUs on one node. Ask for less." in many.stderr) == (
        4,
        True,
    )


def test_a_job_is_for_a_project(system: System) -> None:
    system.cli("projects", "create", "vision", "--member", "alice", who="admin")
    system.cli("policy", "set", "project:vision", "max_gpus=1", "max_duration=1h", who="admin")
    job_id = system.cli("submit", "-g", "1", "-d", "10m", "-p", "vision", "--", "sleep", "600").stdout.strip()
    assert re.search(r"^project +vision$", system.cli("show", job_id).stdout, re.MULTILINE)
    assert _data(system, "show", job_id)["project"] == "vision"  # type: ignore[call-overload]
    assert "vision" in system.cli("list", "-o", "wide").stdout
    assert f"{job_id} is " in system.cli("explain", job_id).stdout
    assert "for project vision." in system.cli("explain", job_id).stdout
    for who, project in (("alice", "speech"), ("bob", "vision")):
        nobody = system.cli("run", "-g", "1", "-d", "10m", "--project", project, "--", "true", who=who)
        assert nobody.returncode == 4
        assert f"You are in no project {project}. Leave the project out, or ask to be made a member." in nobody.stderr
    spelled = system.cli("submit", "-g", "1", "-d", "10m", "-p", "A B", "--", "true")
    assert (spelled.returncode, "--project must be a name" in spelled.stderr) == (2, True)
    shown = system.cli("policy", "set", "project:vision", "max_duration=1m", "--dry-run", who="admin").stdout
    assert re.search(rf"1: {job_id}", shown)
    assert "max_duration 1" in shown
    long = system.cli("submit", "-g", "1", "-d", "2h", "-p", "vision", "--", "true")
    assert "(project vision)" in long.stderr
    second = system.cli("submit", "-g", "1", "-d", "10m", "-p", "vision", "--", "true").stdout.strip()

    def is_held_back() -> bool:
        return "quota_reached" in system.cli("explain", second).stdout

    eventually_sync(is_held_back)
    told = system.cli("explain", second).stdout
    assert "(project vision)" in told
    assert "or all of vision, hold less" in told
    assert "vision" in system.cli("queue", "-o", "wide").stdout
    # The first is given back, and the second starts.
    system.cli("cancel", job_id)
    eventually_sync(lambda: _data(system, "show", second)["status"] == "succeeded")  # type: ignore[call-overload]
    [line] = _data(system, "usage", "--by", "project")["items"]  # type: ignore[call-overload]
    assert line["key"] == "vision"
    assert line["held_gpu_s"] > 0


def test_rules_are_set_and_explained(system: System) -> None:
    assert system.cli("policy", "set", "user:alice", "max_gpus=2", "max_duration=2h").returncode == 6
    said = system.cli("policy", "set", "user:alice", "max_gpus=2", "max_duration=2h", who="admin")
    assert "max_gpus=2" in said.stdout
    assert "max_gpus" not in system.cli("policy", "set", "user:alice", "max_gpus=none", who="admin").stdout
    assert system.cli("policy", "set", "user:alice", "max_gpus=2", who="admin").returncode == 0
    assert "is no rule" in system.cli("policy", "set", "user:alice", "max_cards=2", who="admin").stderr

    def explained() -> bool:
        told = system.cli("explain", "-g", "3", "-d", "3h", "-s", "tomorrow 09:00").stdout
        return all(word in told for word in ("Refused, because:", "max_gpus", "max_duration", "user:alice"))

    eventually_sync(explained)
    assert system.cli("explain", "-g", "3", "-d", "3h", who="bob").stdout.startswith("Starts now.")
    refused = system.cli("book", "create", "-g", "3", "-s", "tomorrow 09:00", "-d", "3h")
    assert refused.returncode == 4
    assert "max_gpus" in refused.stderr
    assert "max_duration" in refused.stderr
    project = system.cli("projects", "create", "vision", "--member", "alice", who="admin")
    assert "alice" in project.stdout
    assert system.cli("book", "create", "-g", "1", "-s", "tomorrow 09:00", "-d", "1h", "-p", "vision").returncode == 0
    assert system.cli("policy", "remove", "user:alice", "--yes", who="admin").returncode == 0
    assert "=7d" in system.cli("policy", "set", "everybody", "max_duration=7d", who="admin").stdout
    assert "max_duration=7d" in system.cli("policy", "show", "default", who="admin").stdout
    assert (
        system.cli("policy", "remove", "everybody", "--yes", who="admin").stdout == "default: its rules are deleted\n"
    )
    assert "default (everybody)" in system.cli("policy", "show", "alice", who="admin").stderr
    ordered = system.cli("policy", "set", "project:vision", "order=arrival", who="admin")
    assert "order=arrival" in ordered.stdout
    wrong = system.cli("policy", "set", "default", "order=size", who="admin")
    assert (wrong.returncode, "order=area or order=arrival" in wrong.stderr) == (2, True)
    misplaced = system.cli("policy", "set", "user:alice", "order=area", who="admin")
    assert (misplaced.returncode, "set it for default or for a project" in misplaced.stderr) == (4, True)


def test_maintenance_is_looked_at_before_it_is_planned(system: System) -> None:
    booking_id = system.cli("book", "create", "-g", "4", "-s", "tomorrow 09:00", "-d", "4h").stdout.split()[0]
    [node] = {one["node"] for one in _data(system, "gpus", "--each")["items"]}  # type: ignore[index, call-overload]
    window = ("maintenance", "plan", node, "--reason", "new fans", "-s", "tomorrow 10:00", "-d", "2h")
    assert system.cli(*window).returncode == 6
    looked = system.cli(*window, "--dry-run", who="admin")
    assert booking_id in looked.stdout
    assert _data(system, "maintenance", "list", who="admin")["items"] == []  # type: ignore[index, call-overload]
    assert "2h --yes" in system.cli(*window, who="admin").stderr
    planned = system.cli(*window, "--yes", who="admin")
    assert booking_id in planned.stdout
    [one] = _data(system, "maintenance", "list", who="admin")["items"]  # type: ignore[index, call-overload]
    assert "no maintenance window" in system.cli("maintenance", "cancel", "nothing", who="admin").stderr
    assert (
        "cancelled" in system.cli("maintenance", "cancel", one["id"].removeprefix("mnt-"), "--yes", who="admin").stdout
    )


@pytest.mark.parametrize("words", [("targets",), ("show",)])
def test_notices_are_shown(system: System, words: tuple[str, ...]) -> None:
    assert system.cli("notify", *words).returncode == 0


def test_notices_are_chosen(system: System) -> None:
    refused = system.cli("notify", "add", "webhook", "not-an-address")
    assert refused.returncode == 2
    chosen = system.cli("notify", "set", "started=none", "ended=email,webhook")
    assert chosen.returncode == 0, chosen.stderr
    kinds = _data(system, "notify", "show")["kinds"]  # type: ignore[index, call-overload]
    assert (kinds["started"], sorted(kinds["ended"])) == ([], ["email", "webhook"])
    assert "Channels:" in system.cli("notify", "set", "ended=pigeon").stderr


def test_a_notification_that_did_not_arrive_is_not_said_to_be_on_its_way(system: System) -> None:
    no_name = f"{64 * 'x'}.example"  # too long for a name, so nobody is asked for its address
    added = system.cli("notify", "add", "webhook", f"https://{no_name}/hook")
    assert added.returncode == 0, added.stderr
    target = added.stdout.split()[0]
    assert f"gpu-dev notify test {target}" in added.stderr
    tried = system.cli("notify", "test", target)
    assert tried.returncode == 4
    assert f"Nothing arrived at https://{no_name}/…: No connection could be made" in tried.stderr


def test_an_address_that_can_not_be_reached_is_refused_with_what_to_do(system: System) -> None:
    # As soon as the processor has said what it can send.
    eventually_sync(lambda: "has no mail server" in system.cli("notify", "add", "email", "ada@example.org").stderr)
    assert "Nothing is sent by email: this server has no mail server." in system.cli("notify", "show").stderr
    loopback = system.cli("notify", "add", "slack", "https://127.0.0.1/hook")
    assert loopback.returncode == 4
    assert "not a public address" in loopback.stderr


def test_now_is_still_now_when_the_minute_turns_on_the_way(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    late = [local_now() - timedelta(minutes=2)]
    monkeypatch.setattr("gpu_dev.inputs.slots.local_now", lambda: late.pop() if late else local_now())
    made = system.cli("book", "create", "-g", "1", "-s", "now", "-d", "10m")
    assert made.returncode == 0, made.stderr
    assert not late
