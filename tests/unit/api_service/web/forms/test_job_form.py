"""Input of the form of a job, and the same for the terminal."""

import shlex
from datetime import timedelta
from typing import Any

import typer
from hypothesis import given
from hypothesis import strategies as st

from api_service.web.forms.equivalents import by_curl, job_by_cli
from api_service.web.forms.form import Form
from api_service.web.forms.job_form import command_of, fields_of, text_of, typed_job
from gpu_dev.commands.jobs.run import submit_app
from reservation_core.contracts.base import ResourcesOut
from reservation_core.contracts.jobs import JobSpec, WorkloadSpec

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=12)


def typed(**fields: str) -> Any:
    return typed_job(Form({name: [value] for name, value in fields.items()}))


def test_what_is_typed_is_what_rest_takes() -> None:
    found = typed(
        gpus="2", nodes="3", duration="1h30m", command="python a.py --x '1 2'", env="A=b\n\nC=", booking="bkg-1"
    )
    assert found.wrong == {}
    assert found.body == {
        "gpus": 2,
        "nodes": 3,
        "duration": 5400,
        "booking_id": "bkg-1",
        "workload": {"command": ["python", "a.py", "--x", "1 2"], "env": {"A": "b", "C": ""}},
    }


def test_retries_are_typed_and_filled_in_again() -> None:
    both = typed(gpus="1", duration="1h", retries="3", requeue="yes").body["retries"]
    assert both == {"max": 3, "on": ["node_lost", "preempted"]}
    assert typed(gpus="1", duration="1h", retries="3").body["retries"] == {"max": 3}
    assert "retries" not in typed(gpus="1", duration="1h", requeue="yes").body
    asked = {"gpus": 1, "duration": 60, "workload": {}, "retries": both}
    assert "--retries 3" in job_by_cli(asked)
    assert "--requeue" in job_by_cli(asked)


def test_cpus_and_memory_are_typed_and_filled_in_again() -> None:
    asked = typed(gpus="1", duration="1h", cpus="2.5", memory="64Gi", shm="500M").body["resources"]
    assert asked == {"cpus": 2.5, "memory": "64Gi", "shm": "500M"}
    assert "resources" not in typed(gpus="1", duration="1h").body
    assert set(typed(gpus="1", duration="1h", cpus="many", memory="64 boxes").wrong) == {"cpus", "memory"}
    by_cli = job_by_cli({"gpus": 1, "duration": 60, "workload": {}, "resources": asked})
    assert "--cpus 2.5 --memory 64Gi --shm 500M" in by_cli
    spec = JobSpec.model_construct(
        name=None, gpus=1, gpu_type=None, nodes=1, duration=timedelta(hours=1), priority=0, project=None, retries=None,
        workload=WorkloadSpec(image=None, command=[], env={}, working_dir=None), secrets=[], disks=[],
        resources=ResourcesOut(cpus=2.5, memory=64 * 2**30, shm=500_000_000),
    )  # fmt: skip
    filled = fields_of(spec)
    assert (filled["cpus"], filled["memory"], filled["shm"]) == ("2.5", "64Gi", "500000000")


def test_a_session_is_asked_for_without_the_disk_home() -> None:
    session = typed(gpus="1", duration="1h", no_home="yes").body
    assert session["no_home"] is True
    assert shlex.split(job_by_cli(session)) == ["gpu-dev", "submit", "--gpus", "1", "--for", "1h", "--no-home"]
    assert "no_home" not in typed(gpus="1", duration="1h").body
    assert "no_home" not in typed(gpus="1", duration="1h", command="true", no_home="yes").body


def test_every_field_that_cannot_be_read_is_named() -> None:
    found = typed(gpus="two", duration="later", env="no equals sign", nodes="1e3")
    assert set(found.wrong) == {"gpus", "duration", "env", "nodes"}
    assert set(typed().wrong) == {"gpus", "duration"}
    assert set(typed(gpus="-1", nodes="-2", retries="-3", priority="-4", duration="1h").wrong) == {
        "gpus",
        "nodes",
        "retries",
    }
    assert set(typed(gpus="1", duration="0m", env="A=1\nA=2").wrong) == {"duration", "env"}


def test_disks_are_one_a_line_and_come_back_as_they_were() -> None:
    found = typed(gpus="1", duration="1h", disks="data\n\n home:ro \nsets:/in:ro\n")
    uses = [
        {"name": "data", "path": "/disks/data"},
        {"name": "home", "path": "/home/dev", "read_only": True},
        {"name": "sets", "path": "/in", "read_only": True},
    ]
    assert (found.wrong, found.body["disks"]) == ({}, uses)
    for text in ("two words", "data:in", "data:rw", "Data", "a:/b:/c"):
        assert set(typed(gpus="1", duration="1h", disks=text).wrong) == {"disks"}, text
    assert "--disk data --disk home:ro --disk sets:/in:ro" in job_by_cli(found.body)
    spec = {
        "name": None,
        "gpus": 1,
        "gpu_type": None,
        "nodes": 1,
        "duration": "PT1H",
        "priority": 0,
        "booking_id": None,
    }
    workload = {"image": None, "command": [], "env": {}, "working_dir": None}
    kept = [{"read_only": False, **use} for use in uses]
    again = fields_of(JobSpec.model_validate({**spec, "project": None, "workload": workload, "disks": kept}))
    assert again["disks"] == "data\nhome:ro\nsets:/in:ro"


def test_secrets_are_one_a_line_and_come_back_as_they_were() -> None:
    found = typed(gpus="1", duration="1h", secrets="HF_TOKEN\n\n a=B \nkey=/run/key\n")
    uses = [{"name": "HF_TOKEN", "env": "HF_TOKEN"}, {"name": "a", "env": "B"}, {"name": "key", "path": "/run/key"}]
    assert (found.wrong, found.body["secrets"]) == ({}, uses)
    assert set(typed(gpus="1", duration="1h", secrets="a b").wrong) == {"secrets"}
    assert set(typed(gpus="1", duration="1h", secrets="a=").wrong) == {"secrets"}
    spec = {"name": None, "gpus": 1, "gpu_type": None, "nodes": 1, "duration": 3600, "priority": 0, "booking_id": None}
    workload = WorkloadSpec(image=None, command=[], env={}, working_dir=None)
    kept = [{"env": None, "path": None, **use} for use in uses]
    again = fields_of(JobSpec.model_validate({**spec, "project": None, "workload": workload, "secrets": kept}))
    assert again["secrets"] == "HF_TOKEN\na=B\nkey=/run/key"
    words = shlex.split(job_by_cli(found.body))
    context = typer.main.get_command(submit_app).make_context("submit", words[2:])
    assert context.params["secret"] == ["HF_TOKEN", "a=B", "key=/run/key"]


def test_jobs_to_wait_for_are_read_and_shown_as_options() -> None:
    found = typed(gpus="1", duration="1h", after="ok:job-a, any:job-b\nfailed:job-c  started:job-d")
    needed = zip("abcd", ("succeeded", "ended", "failed", "started"), strict=True)
    after = [{"job": f"job-{name}", "when": when} for name, when in needed]
    assert (found.wrong, found.body["after"]) == ({}, after)
    assert set(typed(gpus="1", duration="1h", after="later:job-a").wrong) == {"after"}
    words = shlex.split(job_by_cli(found.body))
    context = typer.main.get_command(submit_app).make_context("submit", words[2:])
    assert context.params["after"] == ["ok:job-a", "any:job-b", "failed:job-c", "started:job-d"]


def test_what_only_a_shell_understands_goes_to_one() -> None:
    for text in ("a | b", "echo $HOME", "a && b", "X=1 make", "ls *.py", "one\ntwo", 'echo "open'):
        assert command_of(text) == ["sh", "-c", text]
    assert command_of("python train.py --lr 0.1") == ["python", "train.py", "--lr", "0.1"]


@given(st.lists(WORDS.filter(bool), min_size=1, max_size=4))
def test_a_command_comes_back_as_it_was(command: list[str]) -> None:
    shown = text_of(command)
    again = command_of(shown)
    assert again == command or again == ["sh", "-c", shlex.join(command)]


@given(
    st.fixed_dictionaries(
        {"gpus": st.integers(1, 64), "nodes": st.integers(1, 9), "duration": st.integers(1, 10**6)},
        optional={
            "name": WORDS.map(str.strip).filter(bool),
            "gpu_type": st.just("h100"),
            "priority": st.integers(-9, -1),
        },
    )
)
def test_a_specification_becomes_what_would_be_typed_for_it(spec: dict[str, Any]) -> None:
    nothing = {"name": None, "gpu_type": None, "priority": 0, "booking_id": None, "project": None}
    workload = WorkloadSpec(image=None, command=[], env={}, working_dir=None)
    found = typed(**fields_of(JobSpec(**nothing | spec, workload=workload)))
    assert found.wrong == {}
    assert found.body == {**spec, "workload": {}}


@given(WORDS.map(str.strip).filter(bool), st.lists(WORDS.filter(bool), min_size=1, max_size=3), WORDS)
def test_the_line_for_the_terminal_asks_for_the_same(name: str, command: list[str], value: str) -> None:
    body = {
        "name": name,
        "gpus": 2,
        "duration": 5400,
        "workload": {"command": command, "env": {"A": value}},
    }
    words = shlex.split(job_by_cli(body))
    assert words[:2] == ["gpu-dev", "run"]
    context = typer.main.get_command(submit_app).make_context("submit", words[2:])
    assert context.params["command"] == command
    assert context.params["env"] == [f"A={value}"]
    assert (context.params["name"], context.params["gpus"], context.params["duration"]) == (name, 2, "1h30m")


def test_curl_takes_the_token_from_the_environment() -> None:
    line = by_curl("https://gpus.example.org", "/v1/jobs", {"name": "it's"})
    words = shlex.split(line.replace("\\\n", " "))
    assert words[2] == "https://gpus.example.org/v1/jobs"
    assert words[4] == "Authorization: Bearer $GPU_DEV_TOKEN"
    assert words[-1] == '{"name": "it\'s"}'
