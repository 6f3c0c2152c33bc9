"""How a job ended, as an exit code; what it waits for, in words; and waiting no longer than asked."""

from datetime import datetime, timedelta

import httpx
import pytest

from gpu_dev.display.explaining import as_text, explain
from gpu_dev.display.gpu_types import TypeSummary
from gpu_dev.display.output import Format
from gpu_dev.errors import WaitTimeoutError
from gpu_dev.following import exit_code_of, has_ended, has_output, place_note, wait_until, waiting_line
from reservation_core.domain.statuses import JobStatus, ReasonCode
from tests.unit.gpu_dev.examples import NOON, a_client, a_job, job_json


@pytest.mark.parametrize(
    ("status", "exit_code", "expected"),
    [
        ("succeeded", 0, 0),
        ("succeeded", None, 0),
        ("failed", 3, 3),
        ("failed", 255, 255),
        ("failed", 137, 137),
        ("failed", -9, 137),
        ("failed", 4096, 255),
        # A failed job is never taken for a success, whatever its code.
        ("failed", None, 1),
        ("failed", 0, 1),
        ("cancelled", None, 1),
        ("cancelled", 0, 1),
        ("expired", 143, 124),
        ("expired", None, 124),
    ],
)
def test_exit_codes(status: str, exit_code: int | None, expected: int) -> None:
    assert exit_code_of(a_job(status=status, exit_code=exit_code)) == expected


@pytest.mark.parametrize("status", ["queued", "starting", "running", "ending"])
def test_what_has_not_ended_has_no_exit_code(status: str) -> None:
    with pytest.raises(ValueError, match="has not ended"):
        exit_code_of(a_job(status=status))


def test_a_waiting_job_says_its_place_its_reason_and_its_start() -> None:
    line = waiting_line(a_job())
    assert "place 3 in the queue for h100" in line
    assert "waiting_for_gpus: 2 h100 are free at 13:00." in line
    assert "starts about Sun 1 Mar 2026" in line


def test_a_job_without_a_place_says_that_it_waits_for_one() -> None:
    job = a_job(queue_position=None, estimated_start_at=None)
    assert waiting_line(job).startswith("waiting for its place (")
    assert "Place in the queue for h100: not known yet." in as_text(explain(job, []))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"gpus": 1, "gpu_type": None}, "It asks for 1 GPU of any type."),
        ({"gpus": 2, "gpu_type": "h100"}, "It asks for 2 h100 GPUs."),
        ({"gpus": 8, "gpu_type": "h100", "nodes": 4}, "It asks for 8 h100 GPUs on each of 4 nodes."),
        ({"status": "succeeded"}, "job-7f3k9q2m has succeeded: "),
        ({"status": "failed"}, "job-7f3k9q2m has failed: "),
        ({"status": "cancelled"}, "job-7f3k9q2m was cancelled: "),
        ({"status": "running"}, "job-7f3k9q2m is running: "),
    ],
)
def test_an_explanation_is_in_whole_sentences(changed: dict[str, object], expected: str) -> None:
    assert expected in as_text(explain(a_job(name=None, **changed), []))


def test_waiting_tells_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    states = iter([job_json(), job_json(), job_json(queue_position=2), job_json(status="cancelled")])
    client = a_client(lambda request: httpx.Response(200, text=next(states)))
    assert wait_until(client, a_job(), has_ended).status is JobStatus.CANCELLED
    told = capsys.readouterr()
    first, second, third = told.err.splitlines()
    assert "place 3 in the queue for h100" in first
    assert "place 2 in the queue for h100" in second
    assert "cancelled" in third
    assert told.out == ""


def test_the_reason_of_an_end_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    reason = {"code": "start_failed", "detail": "The pod did not start: no such command."}
    states = [
        job_json(status=status, reason=reason, exit_code=code) for status, code in (("ending", None), ("failed", 127))
    ]
    answers = iter(states)
    client = a_client(lambda request: httpx.Response(200, text=next(answers)))
    wait_until(client, a_job(status="starting"), has_ended)
    said = capsys.readouterr().err
    assert said.count("no such command") == 1
    assert said.splitlines()[-1].endswith(": failed, exit code 127")


def test_of_a_job_that_never_ran_no_output_is_read() -> None:
    never = {"status": "failed", "started_at": None}
    assert not has_output(a_job(**never))
    retries = {"max": 1, "on": ["failed"], "done": 1}
    assert has_output(a_job(**never, retries=retries)), "attempts before may have run"
    assert has_output(a_job(status="failed", started_at=NOON))


def test_a_prediction_that_drifts_is_not_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    likely = [{"p50": NOON + timedelta(minutes=n), "p90": NOON + timedelta(hours=9)} for n in range(4)]
    states = [job_json(estimated_start=start) for start in likely[1:]]
    states += [job_json(queue_position=2, estimated_start=likely[3]), job_json(status="cancelled")]
    answers = iter(states)
    client = a_client(lambda request: httpx.Response(200, text=next(answers)))
    wait_until(client, a_job(estimated_start=likely[0]), has_ended)
    first, second, _ = capsys.readouterr().err.splitlines()
    assert "place 3 in the queue for h100, starts about Sun 1 Mar 2026 12:00" in first
    assert "place 2 in the queue for h100, starts about Sun 1 Mar 2026 12:03" in second


def test_what_was_told_before_is_not_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    ended = a_job(status="failed", exit_code=3)
    client = a_client(lambda request: httpx.Response(200, text=job_json(status="failed", exit_code=3)))
    wait_until(client, ended, has_ended, told=waiting_line(ended))
    assert capsys.readouterr().err == ""
    wait_until(client, ended, has_ended, told="something else")
    assert "exit code 3" in capsys.readouterr().err


def test_waiting_ends_with_its_timeout() -> None:
    client = a_client(lambda request: httpx.Response(200, text=job_json()))
    with pytest.raises(WaitTimeoutError, match="still queued") as caught:
        wait_until(client, a_job(), has_ended, timeout=timedelta(0))
    assert caught.value.next_command == "gpu-dev show job-7f3k9q2m"


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_is_explained_with_something_to_do(code: ReasonCode) -> None:
    said = explain(a_job(reason={"code": code, "detail": "Because."}), [])
    assert said.what_would_help
    assert code.value in as_text(said)


def test_a_job_that_runs_until_maintenance_is_not_told_to_be_submitted_again() -> None:
    job = a_job(status="running", reason={"code": "maintenance", "detail": "Running until 9:00 at the latest."})
    said = as_text(explain(job, []))
    assert f"gpu-dev logs -f {job.id}" in said
    assert "again" not in said


@pytest.mark.parametrize("release_at", [None, NOON + timedelta(hours=1)])
def test_an_idle_job_is_explained(release_at: datetime | None) -> None:
    idle = {"since": NOON, "warned_at": NOON, "release_at": release_at}
    job = a_job(status="running", reason={"code": "running", "detail": "It runs."}, idle=idle)
    said = as_text(explain(job, []))
    assert "Its GPUs have been idle since " in said
    assert ("its GPUs go to others at" in said) == (release_at is not None)
    assert f"gpu-dev keep {job.id}" in said


def kind(name: str, on_one_node: int, *, next_free: bool = False) -> TypeSummary:
    return TypeSummary(
        gpu_type=name,
        total=8,
        free=on_one_node,
        held=8 - on_one_node,
        unusable=0,
        most_free_on_one_node=on_one_node,
        next_free_at=NOON if next_free else None,
    )


def test_what_would_help_a_waiting_job_is_what_is_free() -> None:
    text = as_text(explain(a_job(gpus=4), [kind("a100-80gb", 4), kind("h100", 1), kind("t4", 3)]))
    assert "--type a100-80gb" in text
    assert "1 h100 is free on one node now: --gpus 1" in text
    assert "t4" not in text
    assert "becomes free about" in as_text(explain(a_job(), [kind("h100", 0, next_free=True)]))
    sooner = a_job(estimated_start_at=NOON)  # its own GPUs come free before the next ones that nobody waits for
    assert "becomes free" not in as_text(explain(sooner, [kind("h100", 0, next_free=True)]))


def test_a_job_of_a_booking_is_not_sent_to_other_cards() -> None:
    job = a_job(gpus=4, booking_id="bkg-7f3k9q2m")
    text = as_text(explain(job, [kind("a100-80gb", 4), kind("h100", 1, next_free=True)]))
    assert "gpu-dev book show bkg-7f3k9q2m" in text
    assert "--type" not in text
    assert "becomes free" not in text


def test_a_wrong_type_is_told_the_right_ones() -> None:
    job = a_job(gpu_type="h200", reason={"code": "no_such_type", "detail": "There is no h200."})
    assert "h100, t4" in as_text(explain(job, [kind("h100", 0), kind("t4", 0)]))


def test_a_table_says_what_its_places_count_where_two_are_the_same() -> None:
    one, other = a_job(queue_position=1), a_job(queue_position=1, gpu_type="a100")
    running = a_job(queue_position=None)
    assert place_note([one, other, running], Format.WIDE).strip() == (
        "PLACE counts the jobs of one queue: each type of GPU has its own, and so has each booking."
    )
    assert place_note([one, running, running], Format.TABLE) == ""
    assert place_note([one, other], Format.JSON) == ""
