"""CPUs and memory by the command line, on a local cluster."""

import json

from tests.integration.gpu_dev.conftest import System


def test_a_job_runs_with_what_it_asked_for_and_shows_it(system: System) -> None:
    ran = system.cli("run", "-g1", "-d1m", "--cpus", "0.5", "--memory", "64Mi", "--shm", "1Mi", "--", "echo", "here")
    assert (ran.returncode, ran.stdout) == (0, "here\n"), ran.stderr
    [job] = json.loads(system.cli("list", "--all", "-o", "json").stdout)["items"]
    assert job["resources"] == {"cpus": 0.5, "memory": 64 * 2**20, "shm": 2**20}
    shown = system.cli("show", job["id"]).stdout
    assert "0.5 CPUs" in shown
    again = system.cli("run", "--again", job["id"])
    assert (again.returncode, again.stdout) == (0, "here\n"), again.stderr
    [node] = [node for node in json.loads(system.cli("nodes", "-o", "json").stdout)["items"] if node["gpus"]][:1]
    assert node["cpus"] >= node["cpus_free"] > 0
    assert node["memory_bytes"] >= node["memory_bytes_free"] > 0


def test_an_ask_that_no_node_has_waits_and_says_why(system: System) -> None:
    submitted = system.cli("submit", "-g1", "-d1m", "--cpus", "9999", "--", "true")
    assert submitted.returncode == 0, submitted.stderr
    explained = system.cli("submit", "--test-only", "-g1", "-d1m", "--cpus", "9999", "--", "true")
    assert "9999 CPUs" in explained.stdout + explained.stderr, explained

    rehearsed = system.cli("submit", "--dry-run", "-g1", "-d1m", "--cpus", "9999", "--", "true")
    assert "9999 CPUs" in rehearsed.stdout + rehearsed.stderr, rehearsed


def test_bad_sizes_name_the_option(system: System) -> None:
    for words, said in (
        (("--memory", "lots"), "--memory"),
        (("--cpus", "0"), "--cpus"),
        (("--memory", "1Gi", "--shm", "2Gi"), "shm"),
    ):
        done = system.cli("submit", "-g1", "-d1m", *words, "--", "true")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
