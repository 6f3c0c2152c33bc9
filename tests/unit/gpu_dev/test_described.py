"""A refusal of the server in lines: each thing once, and no path of REST."""

import pytest

from gpu_dev.errors import ApiError
from gpu_dev.main import described, report
from gpu_dev.wire.base import BrokenRule, Problem


@pytest.mark.parametrize(
    ("code", "detail", "field"),
    [
        (
            "no_such_job",
            "You have no job job-7f3k9q2m to wait for. `gpu-dev list --all` shows your jobs.",
            "after.0.job: you have no job job-7f3k9q2m",
        ),
        (
            "no_such_secret",
            "You have no secret X. Set it with `gpu-dev secret set X`.",
            "secrets.0.name: you have no X",
        ),
        ("no_such_disk", "You have no disk x. Create it with `gpu-dev disk create x`.", "disks.0.name: you have no x"),
    ],
)
def test_what_is_unknown_is_said_once_and_without_the_field(code: str, detail: str, field: str) -> None:
    rule = BrokenRule(code=code, detail=field)
    problem = Problem(
        type=f"urn:gpu-dev:problem:{code}", title="No such thing", status=422, detail=detail, broken_rules=[rule]
    )
    assert list(described(problem)) == [detail]


@pytest.mark.parametrize(
    ("code", "detail", "rules", "said"),
    [
        (
            "invalid_request",
            "The request breaks rules.",
            [
                "query.gpus: must be at most 64",
                "attempt: must be at most 9",
                "step: `from` and `until` are 3 steps apart",
            ],
            [
                "The request is not valid:",
                "  - --gpus must be at most 64",
                "  - --attempt must be at most 9",
                "  - --step: --from and --until are 3 steps apart",
            ],
        ),
        (
            "too_many_steps",
            "Give a longer `step`; `gpu_status` stays.",
            [],
            ["Give a longer --step; `gpu_status` stays."],
        ),
    ],
)
def test_fields_are_called_as_their_options_are(
    code: str, detail: str, rules: list[str], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [BrokenRule(code="x", detail=rule) for rule in rules]
    kind = f"urn:gpu-dev:problem:{code}"
    report(ApiError(Problem(type=kind, title="Not possible", status=422, detail=detail, broken_rules=broken or None)))
    assert capsys.readouterr().err.removeprefix("error: ").splitlines() == said
