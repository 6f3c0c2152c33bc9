"""A refusal of the server in lines: each thing once, and no path of REST."""

from gpu_dev.main import described
from gpu_dev.wire.base import BrokenRule, Problem


def test_an_unknown_job_is_said_once_and_without_the_field() -> None:
    detail = "You have no job job-7f3k9q2m to wait for. `gpu-dev list --all` shows your jobs."
    rule = BrokenRule(code="no_such_job", detail="after.0.job: you have no job job-7f3k9q2m")
    problem = Problem(
        type="urn:gpu-dev:problem:no_such_job", title="No such job", status=422, detail=detail, broken_rules=[rule]
    )
    assert list(described(problem)) == [detail]
