"""Amounts as Kubernetes writes them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.pods.quantities import format_bytes, format_cores, read_quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0), (8, 8), ("500m", Decimal("0.5")), ("1.5", Decimal("1.5")), (".5", Decimal("0.5")), ("1.", 1),
        ("64Gi", 64 * 2**30), ("64G", 64 * 10**9), ("1e3", 1000), ("12E", 12 * 10**18), ("1Ei", 2**60), ("100k", 10**5),
        ("128974848000m", 128974848),
    ],
)  # fmt: skip
def test_amounts(text: object, amount: object) -> None:
    assert read_quantity(text) == amount


@pytest.mark.parametrize(
    "text", ["", "-1", "1 Gi", "1gi", "Gi", ".", "1e", "NaN", "inf", "1" * 30, None, True, 1.5, [], "٣"]
)
def test_what_is_no_amount(text: object) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        read_quantity(text)


@given(st.integers(0, 2**50))
def test_bytes_are_written_exactly(amount: int) -> None:
    assert read_quantity(format_bytes(Decimal(amount))) == amount


def test_bytes_are_rounded_up() -> None:
    assert format_bytes(Decimal("0.5")) == "1"


@given(st.decimals(0, 10**6, places=6))
def test_cores_are_rounded_up_to_thousandths(cores: Decimal) -> None:
    assert 0 <= read_quantity(format_cores(cores)) - cores < Decimal("0.001")
