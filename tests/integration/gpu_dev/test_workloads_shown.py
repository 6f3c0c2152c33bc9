"""What a job or a booking runs stands in its details on the command line."""

from tests.integration.gpu_dev.conftest import System

RUNS = ("-e", "KEY=hidden", "--working-dir", "/tmp", "--", "sh", "-c", "echo $KEY; sleep 60")


def test_a_job_and_a_booking_say_what_they_run(system: System) -> None:
    job = system.cli("submit", "-g", "1", "-d", "5m", *RUNS).stdout.split()[0]
    made = system.cli("book", "create", "-g", "1", "-s", "tomorrow 09:00", "-d", "1h", *RUNS)
    assert made.returncode == 0, made.stderr
    for words in (("show", job), ("book", "show", made.stdout.split()[0])):
        facts = {line[:14].strip(): line for line in system.cli(*words).stdout.splitlines()}
        assert facts["command"].endswith("sh -c 'echo $KEY; sleep 60'")
        assert facts["working folder"].endswith("/tmp")
        assert facts["variables"].endswith("KEY"), "its value may be secret"
    assert system.cli("cancel", job).returncode == 0
