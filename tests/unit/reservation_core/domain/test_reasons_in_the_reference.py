"""Reasons are stable and told to programs: the reference has all of them."""

from enum import StrEnum
from pathlib import Path

import pytest

from reservation_core.domain.statuses import BookingReason, ReasonCode

REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "rest.md"


@pytest.mark.parametrize("code", [*ReasonCode, *BookingReason])
def test_every_reason_is_in_the_reference(code: StrEnum) -> None:
    assert f"`{code.value}`" in REFERENCE.read_text()
