"""Arrays by the command line, on the local cluster."""

import json

import pytest

from tests.integration.gpu_dev.conftest import System
from tests.waiting import eventually_sync

PRINTS = 'echo "element $GPU_DEV_ARRAY_INDEX of $GPU_DEV_ARRAY_SIZE"; test "$GPU_DEV_ARRAY_INDEX" != 2'


def jobs(system: System) -> list[dict[str, object]]:
    return list(json.loads(system.cli("list", "--all", "-o", "json").stdout)["items"])


def test_elements_run_with_their_indexes_and_the_array_is_one_job(system: System) -> None:
    ran = system.cli("submit", "-g1", "-d1m", "--array", "0-3%2", "--wait", "--name", "sweep", "--", "sh", "-c", PRINTS)
    assert ran.returncode == 1, ran.stderr
    array_id = ran.stdout.strip()
    [array] = jobs(system)
    assert (array["id"], array["status"], array["exit_code"]) == (array_id, "failed", 1)
    assert array["array"] == {
        "size": 4, "parallel": 2, "queued": 0, "running": 0, "succeeded": 3, "failed": 1, "cancelled": 0, "expired": 0,
    }  # fmt: skip
    assert "failed, 4 of 4 ended" in system.cli("list", "--all").stdout
    shown = system.cli("show", array_id).stdout
    assert "3 succeeded, 1 failed of 4; at most 2 at once" in shown
    assert system.cli("logs", f"{array_id}.3").stdout == "element 3 of 4\n"
    assert system.cli("logs", "sweep.1").stdout == "element 1 of 4\n"
    whole = "".join(f"[{index}] element {index} of 4\n" for index in range(4))
    assert system.cli("logs", array_id).stdout == whole
    assert system.cli("logs", "--follow", array_id).stdout == whole
    listed = json.loads(system.cli("list", "--elements", array_id, "-o", "json").stdout)["items"]
    assert [one["id"] for one in listed] == [f"{array_id}.{index}" for index in range(4)]
    assert f"Which failed: gpu-dev list --elements {array_id} --status failed" in system.cli("explain", array_id).stdout
    failed = json.loads(system.cli("list", "--elements", array_id, "--status", "failed", "-o", "json").stdout)["items"]
    assert [(one["id"], one["element"]["index"], one["exit_code"]) for one in failed] == [(f"{array_id}.2", 2, 1)]
    events = json.loads(system.cli("events", array_id, "-o", "json").stdout)["items"]
    assert [(event["kind"], event["before"], event["after"]) for event in events] == [
        ("submitted", None, "queued"),
        ("started", "queued", "running"),
        ("failed", "running", "failed"),
    ]
    assert events[1]["reason"]["detail"] == "Its first element has started."


def test_commands_that_only_elements_know_say_so(system: System) -> None:
    array_id = system.cli(
        "submit", "-g1", "-d10m", "--array", "0-1", "--name", "sweep", "--", "sleep", "600"
    ).stdout.strip()
    eventually_sync(lambda: jobs(system)[0]["status"] == "running")
    hint = f"Name one of them, such as {array_id}.0; `gpu-dev list --elements {array_id}` lists them."
    for command in (["exec", array_id, "--", "true"], ["shell", array_id], ["keep", array_id], ["metrics", array_id],
                    ["extend", array_id, "--by", "1m"], ["open", array_id, "8888"]):  # fmt: skip
        refused = system.cli(*command)
        assert refused.returncode != 0, command
        assert "is an array" in refused.stderr, (command, refused.stderr)
        assert hint in " ".join(refused.stderr.split()), (command, refused.stderr)
    eventually_sync(lambda: system.cli("exec", f"{array_id}.1", "--", "true").returncode == 0)
    assert system.cli("cancel", array_id).returncode == 0


def test_cancelling_the_array_ends_all_of_it(system: System) -> None:
    array_id = system.cli("submit", "-g1", "-d10m", "--array", "0-9999", "--", "sleep", "600").stdout.strip()
    assert system.cli("cancel", array_id).returncode == 0
    eventually_sync(lambda: jobs(system)[0]["status"] == "cancelled")
    [array] = jobs(system)
    assert array["array"]["cancelled"] == 10_000  # type: ignore[index]


@pytest.mark.parametrize("array", ["1-5", "0-10000", "0-9%0", "1,3", "0-9:2", "x", "0-"])
def test_other_forms_are_refused_plainly(unreachable: System, array: str) -> None:
    refused = unreachable.cli("submit", "-g1", "-d1m", "--array", array, "--", "true")
    assert (refused.returncode, "--array" in refused.stderr) == (2, True), refused.stderr
