"""CPUs and memory by the command line, on a local cluster."""

import json
import re

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


def test_a_job_in_a_booking_runs_with_at_most_the_share_of_its_gpus(system: System) -> None:
    wanted = ("book", "create", "-g", "2", "-s", "now", "-d", "10m")
    rehearsed = system.cli(*wanted, "--dry-run").stdout
    booked = system.cli(*wanted)
    assert booked.returncode == 0, booked.stderr
    [booking] = json.loads(system.cli("book", "list", "-o", "json").stdout)["items"]
    [node] = [node for node in json.loads(system.cli("nodes", "-o", "json").stdout)["items"] if node["gpus"]]
    share = node["cpus"] / node["gpus"]
    assert booking["resources"]["cpus"] == 2 * share
    words_of_share = rf" {2 * share:g} CPUs?, \S+ [KMGT]iB memory"
    assert re.search(words_of_share, rehearsed)
    for words in (("show", booking["id"]), ("list", "-o", "wide")):
        assert re.search(words_of_share, system.cli("book", *words).stdout)
    within = ("-g1", "-d1m", "--booking", booking["id"])
    ran = system.cli("run", *within, "--cpus", str(share), "--memory", "64Mi", "--shm", "1Mi", "--", "echo", "here")
    assert (ran.returncode, ran.stdout) == (0, "here\n"), ran.stderr
    [job] = json.loads(system.cli("list", "--all", "-o", "json").stdout)["items"]
    assert (job["booking_id"], job["resources"]["cpus"]) == (booking["id"], share)
    for words in (("submit", "--memory", "900Ti", "--", "true"), ("dev", "--memory", "900Ti")):
        refused = system.cli(words[0], *within, "--cpus", str(share + 0.5), *words[1:])
        assert refused.returncode not in (0, 2)
        assert f"at most {share:g} CPU" in refused.stderr
        assert f"the share of 1 GPU of {booking['id']}" in refused.stderr
        assert "900Ti of memory" in refused.stderr
        assert "resources." not in refused.stderr
