"""The name that a mistyped one probably means."""

import pytest

from reservation_core.domain.policy.membership import not_in_project
from reservation_core.domain.similar_names import type_meant

TYPES = ("a100", "h100", "rtx4090", "t4")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("h10", "h100"),
        ("hh100", "h100"),
        ("hl0O", "h100"),
        ("H-100", "h100"),
        ("nvidia-h100", "h100"),
        ("NVIDIA H100 80GB", "h100"),
        ("rtx409", "rtx4090"),
        ("rxt4090", "rtx4090"),
    ],
)
def test_a_mistyped_type_is_named(typed: str, meant: str) -> None:
    assert type_meant(typed, TYPES) == f" Did you mean {meant}?"


@pytest.mark.parametrize("typed", ["v100", "h200", "b200", "rtx3090", "p4", "mi300x", ""])
def test_another_type_is_not_one_that_is_mistyped(typed: str) -> None:
    assert type_meant(typed, TYPES) == ""


def test_a_project_is_compared_with_those_of_the_user() -> None:
    assert not_in_project("vison", ["speech", "vision"]).detail == (
        "You are in no project vison. Did you mean vision? Leave the project out, or ask to be made a member."
    )
