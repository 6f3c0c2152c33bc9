"""Complaints about fields that are wrong."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from reservation_core.contracts.bookings import BookingCreate
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.contracts.people import UserCreate
from reservation_core.contracts.policy import RulesIn
from reservation_core.domain.complaints import complaint

PYDANTIC = re.compile(r"pattern|Input|String should|Extra|[\^\[\]\\$]|Value error|timedelta")


def complaints(model: type[BaseModel], fields: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(fields)
    return [complaint(error) for error in caught.value.errors(include_context=False)]


def test_a_size_is_bounded_in_units() -> None:
    job = {"gpus": 1, "duration": 60, "resources": {"memory": 10}, "workload": {"command": ["true"]}}
    assert complaints(JobSubmit, job) == ["must be at least 1 MiB, as in 64Gi or 500M"]
    assert "must be at most 1048576" in complaints(RulesIn, {"max_gpus": 2**30})


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"retries": 3}, "must be an object, as in {}"),
        ({"workload": {"command": ["true"], "env": ["A=1"]}}, "must be an object, as in {}"),
        ({"preemptible": "yes"}, "must be true or false"),
        ({"workload": {"command": [1]}}, "must be a string"),
        ({"duration": "PT"}, "must be a number of seconds or an ISO 8601 duration such as PT4H"),
    ],
)
def test_what_is_no_object_and_no_truth_value_is_told_without_a_type_of_ours(field: dict[str, Any], said: str) -> None:
    job = {"gpus": 1, "duration": 60, "workload": {"command": ["true"]}}
    assert complaints(JobSubmit, job | field) == [said]


def test_a_field_is_said_to_be_missing_unknown_or_of_another_form() -> None:
    assert complaints(UserCreate, {"name": "Carol!"}) == [
        "must be a name of lower-case letters, digits and . _ @ + -, with a letter or digit at both ends"
    ]
    assert complaints(UserCreate, {}) == ["is missing"]
    assert complaints(UserCreate, {"name": "ann", "colour": "blue"}) == ["is not known here; leave it out"]
    job = {"gpus": 65, "duration": 60, "workload": {"command": ["true"], "working_dir": "x"}}
    assert complaints(JobSubmit, job) == [
        "must be at most 64",
        "must be a path that begins with /",
    ]
    pod = {"type": "string_pattern_mismatch", "msg": "String should match pattern '^bkg-[0-9a-z]{1,32}$'"}
    assert complaint(pod) == "must be an id such as bkg-7f3k9q2m"


def test_every_pattern_has_its_words() -> None:
    found: set[str] = set()
    for package in ("reservation_core.contracts", "api_service.routes"):
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            source = Path(importlib.import_module(module.name).__file__ or "").read_text()
            found |= set(re.findall(r'pattern=r?f?"(.*?)"[,)]', source))
    assert len(found) > 10
    for pattern in found:
        error = {"type": "string_pattern_mismatch", "msg": f"String should match pattern '{pattern}'"}
        assert not PYDANTIC.search(complaint(error)), pattern


def test_prices_and_blank_texts_are_said_in_words() -> None:
    assert complaints(RulesIn, {"cost_per_gpu_hour": "2,50 EUR"}) == ["must be an amount and a unit, such as 2.50 EUR"]
    assert complaints(RulesIn, {"cost_per_gpu_hour": "1 ×"}) == ["must be an amount and a unit, such as 2.50 EUR"]
    blank = {"type": "string_pattern_mismatch", "msg": r"String should match pattern '\S'"}
    assert complaint(blank) == "must not be empty"


def test_bounds_of_bookings_are_said_in_words() -> None:
    fields = {"gpus": 0, "start": "soon", "duration": "P9000D", "title": ""}
    assert not any(PYDANTIC.search(text) for text in complaints(BookingCreate, fields))


def test_sizes_lists_and_names_are_said_in_words() -> None:
    workload = {"command": "python train.py", "env": {"1A": "x"}}
    assert complaints(JobSubmit, {"name": "", "gpus": 1, "duration": 60, "workload": workload}) == [
        "must not be empty",
        "must be a list",
        "names must be at most 128 letters, digits and _, and not begin with a digit",
    ]
    long = {"name": "x" * 201, "gpus": 1, "duration": 60, "workload": {"command": ["x"] * 257}}
    assert complaints(JobSubmit, long) == ["must have at most 200 characters", "must have at most 256 entries"]
