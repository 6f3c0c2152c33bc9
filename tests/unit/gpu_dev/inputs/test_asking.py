"""Asking for confirmation."""

import sys

import pytest

from gpu_dev.errors import DeclinedError, UsageError
from gpu_dev.inputs import asking


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        (["pods", "end", "p"], "gpu-dev pods end p --yes"),
        (["users", "disable", "--", "-x"], "gpu-dev users disable --yes -- -x"),
    ],
)
def test_where_nobody_can_be_asked_the_same_command_with_yes_is_suggested(
    monkeypatch: pytest.MonkeyPatch, typed: list[str], suggested: str
) -> None:
    monkeypatch.setattr(asking, "can_ask", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu-dev", *typed])
    with pytest.raises(UsageError) as refused:
        asking.confirmed("End it?", yes=False)
    assert refused.value.next_command == suggested


def test_a_no_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "can_ask", lambda: True)
    monkeypatch.setattr(asking, "ask", lambda _: "n")
    with pytest.raises(DeclinedError) as declined:
        asking.confirmed("End it?", yes=False)
    assert declined.value.exit_code == 1
