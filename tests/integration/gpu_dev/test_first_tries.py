"""What people type who use it for the first time, or as they would say it."""

from tests.integration.gpu_dev.conftest import System


def test_an_end_that_is_given_alone_is_the_first_after_the_booking_begins(system: System) -> None:
    made = system.cli("book", "create", "-g1", "-s", "mon 9-17", "--title", "runs")
    assert made.returncode == 0, made.stderr
    moved = system.cli("book", "move", "runs", "--end", "18:00")
    assert (moved.returncode, "09:00 to 18:00 UTC" in moved.stdout) == (0, True), moved


def test_where_nothing_is_ever_free_the_search_says_why(system: System) -> None:
    most = system.cli("book", "slots", "-g64", "-d1h")
    assert most.returncode == 2
    assert "It asks for 64 GPUs on one node, and the largest has" in most.stderr
    assert "There is no GPU of type h10" in system.cli("book", "slots", "-g1", "-d1h", "-t", "h10").stderr
    assert "There is no node gamma" in system.cli("book", "slots", "-g1", "-d1h", "--node", "gamma").stderr


def test_the_audit_log_of_a_job_is_found_by_its_name(system: System) -> None:
    job = system.cli("submit", "-g1", "-d1h", "-n", "train", "--", "sleep", "99").stdout.strip()
    for who in ("alice", "admin"):
        found = system.cli("audit", "--subject", "train" if who == "alice" else job, "-o", "json", who=who)
        assert f'"subject": "{job}"' in found.stdout, found
    assert system.cli("audit", "--subject", "nothing").returncode == 3


def test_an_output_that_is_empty_is_said_to_be_so(system: System) -> None:
    quiet = system.cli("run", "-g1", "-d1h", "-n", "quiet", "--", "true")
    assert quiet.returncode == 0, quiet.stderr
    shown = system.cli("logs", "quiet")
    assert (shown.stdout, "printed nothing." in shown.stderr) == ("", True), shown


def test_a_booking_is_not_said_to_start_about_a_time(system: System) -> None:
    said = system.cli("explain", "-g1", "-d1h", "-s", "tomorrow 9am").stdout
    assert said.startswith("Accepted, starts ")
    assert "about" not in said


def test_a_size_may_be_written_as_it_is_shown(system: System) -> None:
    for name, size in (("a", "1 GiB"), ("b", "1GB"), ("c", "1GiB")):
        made = system.cli("disk", "create", name, "--size", size)
        assert made.returncode == 0, made.stderr
