"""Every rule that can be broken has a status, and nothing of what was sent comes back."""

import json
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.requests import Request

from api_service.problems import MAX_BROKEN_RULES, STATUS_OF, broken_rules, of_exception, of_validation
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.contracts.policy import RulesIn
from reservation_core.domain import errors
from reservation_core.domain.errors import DomainError

REQUEST = Request({"type": "http", "method": "GET", "path": "/", "headers": [], "request_id": "r-1"})


def _all_kinds(kind: type[DomainError]) -> set[type[DomainError]]:
    return {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DomainError)} - {kind}


def test_every_kind_of_broken_rule_has_a_status() -> None:
    assert set(STATUS_OF) == _all_kinds(DomainError)
    codes = [kind.code for kind in STATUS_OF]
    assert len(set(codes)) == len(codes)


def test_each_becomes_a_problem_with_its_code() -> None:
    for kind, status in STATUS_OF.items():
        response = of_exception(kind("Do this next."), REQUEST)
        assert response is not None
        assert response.status_code == status
        assert json.loads(response.body) == {
            "type": f"urn:gpu-dev:problem:{kind.code}",
            "title": json.loads(response.body)["title"],
            "status": status,
            "detail": "Do this next.",
            "instance": "urn:gpu-dev:request:r-1",
        }


def test_the_unforeseen_has_no_answer_here() -> None:
    assert of_exception(RuntimeError("inside"), REQUEST) is None


def test_a_flood_of_broken_fields_is_cut_and_their_names_too() -> None:
    found = None
    try:
        JobSubmit.model_validate({f"{i}" + "x" * 1000: 1 for i in range(5000)})
    except ValidationError as error:
        found = of_validation(error)
    assert found is not None
    assert found.broken_rules is not None
    assert len(found.broken_rules) == MAX_BROKEN_RULES + 1
    assert found.broken_rules[-1].code == "more"
    assert max(len(rule.detail) for rule in found.broken_rules) < 200


def test_lengths_out_of_bounds_are_told_in_words_and_by_the_fields_name() -> None:
    with pytest.raises(ValidationError) as caught:
        RulesIn.model_validate({"max_advance": "P500D"})
    rules = broken_rules(caught.value.errors(include_url=False))
    assert [rule.detail for rule in rules] == [
        "max_advance: must be at most 400 days",
        "max_advance: must be 'unlimited'",
    ]


@pytest.mark.parametrize("fields", [{"max_gpus": -1}, {"max_gpus": "many"}, {"idle": "10%"}, {"max_duration": "7d"}])
def test_fields_are_named_without_the_validators_names_for_their_types(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        RulesIn.model_validate(fields)
    [name] = fields
    rules = broken_rules(caught.value.errors(include_url=False))
    assert [rule.detail.partition(": ")[0] for rule in rules] == [name] * 2
