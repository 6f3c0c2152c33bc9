"""From words on the command line to a request."""

import io
import json
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError

from gpu_dev.commands.gpus.queue import DeadLetterQueueName, read_message
from gpu_dev.errors import UsageError
from gpu_dev.inputs.asking import needed_duration, needed_gpus, read_gpus
from gpu_dev.inputs.requests import make_request, read_env, read_submit, read_working_dir
from gpu_dev.server.checked_answers import contract_of
from gpu_dev.wire.bookings import BookingCreate
from gpu_dev.wire.jobs import JobSubmit
from gpu_dev.wire.maintenance import MaintenanceCreate
from gpu_dev.wire.people import TokenBudget


def test_complaints_name_the_options_and_not_the_values() -> None:
    fields = {"gpus": 65, "duration": 60, "gpu_type": "H 100", "workload": {"env": {"GPU_DEV_X": "s3cret"}}}
    with pytest.raises(UsageError) as caught:
        make_request(JobSubmit, fields)
    for option in ("--gpus", "--type", "--env"):
        assert option in caught.value.detail
    assert "s3cret" not in caught.value.detail


def test_of_several_options_that_set_a_field_the_wrong_one_is_named() -> None:
    fields = {"gpus": 1, "duration": timedelta(hours=1), "workload": {}, "resources": {"cpus": -3, "memory": "64Gi"}}
    with pytest.raises(UsageError, match=r"^--cpus must be greater than 0\.$"):
        make_request(JobSubmit, fields)


def test_blank_names_are_refused_since_pages_link_them() -> None:
    with pytest.raises(UsageError, match=r"^--name must not be blank\.$"):
        make_request(JobSubmit, {"gpus": 1, "duration": timedelta(hours=1), "name": "  ", "workload": {}})


def test_a_time_that_clocks_skip_is_told_once_with_its_option() -> None:
    fields = {"gpus": 1, "start": "2027-03-28T02:30", "duration": timedelta(hours=1), "time_zone": "Europe/Berlin"}
    with pytest.raises(UsageError, match=r"^--start: 2027-03-28T02:30 does not exist .*\+02:00\.$"):
        make_request(BookingCreate, fields)


def test_an_option_that_needs_another_is_refused_with_both() -> None:
    fields = {"gpus": 1, "start": "2027-03-28T12:30Z", "duration": timedelta(hours=1), "auto_accept": True}
    with pytest.raises(UsageError, match=r"^--auto-accept needs --wait: add --wait, or leave --auto-accept out\.$"):
        make_request(BookingCreate, fields)


def test_env_takes_values_from_here_or_from_the_option() -> None:
    assert read_env(["A=1=2", "B=", "HF_TOKEN"], {"HF_TOKEN": "hf"}) == {"A": "1=2", "B": "", "HF_TOKEN": "hf"}
    with pytest.raises(UsageError, match="no such variable"):
        read_env(["MISSING"], {})


@pytest.mark.parametrize("typed", ["KEY:s3cret", "KEY s3cret", "KEY-s3cret"])
def test_env_without_an_equals_sign_is_refused_without_its_value(typed: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_env([typed], {})
    assert refused.value.detail == "--env KEY…: write --env KEY=VALUE, with an equals sign."


def test_a_working_dir_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_working_dir(".") == str(tmp_path)
    assert read_working_dir("/data/../x") == "/x"
    assert read_working_dir(None) is None


def test_a_request_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"gpus": 2, "duration": "PT4H", "workload": {"command": ["true"]}}')
    assert read_submit(str(path)).gpus == 2
    path.write_text('{"gpus": "2"}')
    with pytest.raises(UsageError, match="gpus must be a whole number; duration is missing"):
        read_submit(str(path))
    with pytest.raises(UsageError, match="can't be read"):
        read_submit(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"gpus": 1,', "must be JSON: it ends too early at line 1, column 11."),
        ('{"gpus": 1,\n"duration" 3}', "must be JSON: the fault is at line 2, column 12."),
        ("[1]", "must be an object, as in {}."),
        ('{"gpus": 1, "duration": "PT1H", "workload": []}', "workload must be an object, as in {}."),
    ],
)
def test_a_broken_file_is_said_to_be_so_in_plain_words(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_submit(str(path))
    assert refused.value.detail == f"{path} is no job: {fault}"


JOB = '"workload": {"command": ["true"]}'


@pytest.mark.parametrize(
    "text",
    [
        f'{{"gpus": 2, "duration": 3600, {JOB}}}',
        f' {{"gpus": 2, "duration": "PT1H30M", {JOB}, "name": "x", "inactivity": "PT30M"}}\n',
        *(f'{{"gpus": 2, "duration": {duration}, {JOB}}}' for duration in ("true", "1.5", "0", "7776000", "7776001")),
        *(
            f'{{"gpus": 2, "duration": "{duration}", {JOB}}}'
            for duration in (
                "P",
                "PT",
                "P1DT",
                "P1D",
                "p1d",
                "+P1D",
                "-P1D",
                "P1W",
                "PT0S",
                "P90D",
                "P91D",
                "4h",
                "3600",
            )
        ),
        *(f'{{"gpus": {gpus}, "duration": "PT1H", {JOB}}}' for gpus in ("2.0", '"2"', "true", "null", "65", "9" * 400)),
        f'{{"gpus": 2, "duration": 3600, {JOB}, "inactivity": "+PT30M"}}',
        f'{{"gpus": 2, "duration": 3600, {JOB}, "inactivity": 59}}',
        '{"gpus": 1, "gpus": 2, "duration": "PT1H", "workload": {}}',
        '{"gpus": 2, "duration": "PT1H", "workload": {"comand": ["true"]}}',
        '{"gpus": 2, "duration": "PT1H", "workload": {"command": ["a\\nb", "\\ud800"]}}',
        '{"gpus": 2, "duration": "PT1H", "workload": {"command": ["a\\nb", "\\u0000"]}}',
        '{"gpus": 2, "duration": "PT1H", "workload": {"command": ["a\\nb"], "env": {"A": "1\\n2", "B": ""}}}',
        '{"gpus": 2, "duration": "PT1H", "workload": {"image": "x\\n"}}',
        '{"gpus": 2, "duration": "PT1H", "workload": {}, "gpu": 3}',
        '{"gpus": 2, "duration": "PT1H", "workload": {}, "name": null, "priority": -5}',
        *("", "[]", "3", "{}", "x", "{}{}", "\ufeff{}", "[" * 5000, '{"gpus": NaN}'),
    ],
)
def test_a_file_is_taken_where_the_contract_takes_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    contract = contract_of(JobSubmit)
    try:
        expected = contract.model_validate_json(text)
    except ValidationError:
        with pytest.raises(UsageError):
            read_submit(str(path))
        return
    sent = msgspec.json.encode(read_submit(str(path)))
    assert json.loads(sent).keys() == json.loads(text).keys()
    assert contract.model_validate_json(sent) == expected


def test_where_nobody_can_be_asked_the_command_to_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_dev.inputs.asking.can_ask", lambda: False)
    for ask in (needed_gpus, needed_duration):
        with pytest.raises(UsageError) as caught:
            ask(None, "gpu-dev run --gpus 1 --for 1h -- x")
        assert caught.value.next_command == "gpu-dev run --gpus 1 --for 1h -- x"


def test_at_a_terminal_it_asks_until_it_understands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpu_dev.inputs.asking.can_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("many\n-1\n2\n"))
    assert needed_gpus(None, "") == 2
    with pytest.raises(UsageError, match="--gpus is missing"):
        needed_gpus(None, "")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("text", ["65", "-1", "1.5", "²", ""])
def test_numbers_of_gpus(text: str) -> None:
    with pytest.raises(UsageError):
        read_gpus(text)


def test_dead_letters_are_named_as_they_are_shown() -> None:
    assert read_message("gpu_jobs/12", None) == (DeadLetterQueueName.GPU_JOBS, 12)
    assert read_message("pod_operations_dlq/3", None) == (DeadLetterQueueName.POD_OPERATIONS, 3)
    assert read_message("7", DeadLetterQueueName.GPU_JOBS) == (DeadLetterQueueName.GPU_JOBS, 7)
    for wrong in ("7", "x/7", "gpu_jobs/x", "gpu_jobs/-1", ""):
        with pytest.raises(UsageError):
            read_message(wrong, None)
    with pytest.raises(UsageError):
        read_message("gpu_jobs/1", DeadLetterQueueName.POD_OPERATIONS)


@pytest.mark.parametrize(
    ("model", "fields", "option"),
    [
        (BookingCreate, {"start": "2030-01-31T09:00Z", "recurrence": "FREQ=X"}, "--rrule"),
        (BookingCreate, {"start": "2030-01-31T09:00Z", "title": ""}, "--title"),
        (BookingCreate, {"start": "2030-01-31T09:00Z", "node": ""}, "--node"),
        (MaintenanceCreate, {"nodes": ["n1"], "reason": ""}, "--reason"),
        (TokenBudget, {"gpu_hours": 0}, "--gpu-hours"),
    ],
)
def test_a_fault_names_the_option_and_no_field_of_rest(model: type, fields: dict[str, object], option: str) -> None:
    more = {} if model is TokenBudget else {"duration": timedelta(hours=1)}
    gpus = {"gpus": 1} if model is BookingCreate else {}
    with pytest.raises(UsageError) as refused:
        make_request(model, {**fields, **more, **gpus})
    assert refused.value.detail.startswith(option)
