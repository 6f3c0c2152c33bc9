"""Words of an address that choose from a few: a view, an order."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from api_service.problems import ProblemError

_CALLED = {"sort": "order", "status": "status"}
E = TypeVar("E", bound=StrEnum)


def chosen_word(kind: type[E], value: str, name: str, what: str) -> E | None:
    """What the parameter `name` of the address of `what` chooses; None without a value. Raises ProblemError (422)."""
    if not value:
        return None
    try:
        return kind(value)
    except ValueError:
        raise no_such_choice(what, name, kind) from None


def no_such_choice(what: str, name: str, known: Iterable[str]) -> ProblemError:
    """The problem of an address with a word that `what` does not know."""
    detail = f"{what} has no such {_CALLED.get(name, 'view')}. Write `{name}=` in the address with one of "
    return ProblemError(422, "invalid_request", f"{detail}{', '.join(known)}.")
