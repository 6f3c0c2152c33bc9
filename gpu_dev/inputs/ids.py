"""Ids as people type them: with or without `job-`, cut short as long as only one job fits.

Ids are Crockford base 32: read aloud, `O` is 0 and `I` and `L` are 1, and case does not matter.
"""

from collections.abc import Iterable
from itertools import islice

from gpu_dev.errors import AmbiguousIdError, NoSuchJobError, UsageError

PREFIX = "job-"
FULL_LENGTH = 8
SEARCHED = 5_000
_SPOKEN = str.maketrans({"o": "0", "i": "1", "l": "1"})
_SHOWN = 10


def normal_id(text: str) -> str:
    """What was typed, in the form ids have: `job-` and lower-case base 32. Raises NoSuchJobError for what is no id."""
    rest = text.strip().lower().removeprefix(PREFIX).translate(_SPOKEN)
    if not rest or len(rest) > 32 or not (rest.isascii() and rest.isalnum()):
        raise NoSuchJobError(f"{text!r} is not a job's id. Ids look like job-7f3k9q2m.", next_command="gpu-dev list")
    return PREFIX + rest


def is_whole(job_id: str) -> bool:
    """Whether an id in its normal form is whole, so that nobody need be asked which job is meant."""
    return len(job_id) >= len(PREFIX) + FULL_LENGTH


def resolve_id(text: str, known: Iterable[str]) -> str:
    """The one id that `text` stands for.

    `known` are the ids to choose from, newest first; it is read only when `text` is not whole, and only the newest
    5,000. Raises NoSuchJobError when none fits, AmbiguousIdError (with the candidates) when several do.
    """
    wanted = normal_id(text)
    if is_whole(wanted):
        return wanted
    fitting = [job_id for job_id in islice(known, SEARCHED) if job_id.startswith(wanted)]
    if wanted in fitting:
        return wanted
    match fitting:
        case []:
            raise NoSuchJobError(
                f"No job of yours among the newest {SEARCHED} begins with {wanted}.", next_command="gpu-dev list --all"
            )
        case [only]:
            return only
        case _:
            shown = ", ".join(fitting[:_SHOWN]) + (" …" if len(fitting) > _SHOWN else "")
            raise AmbiguousIdError(f"{wanted} fits {len(fitting)} jobs: {shown}. Type more of the id.")


def whole_booking_id(text: str) -> str:
    """A booking's id as typed, with or without `bkg-`. Raises UsageError for what is none."""
    rest = text.strip().lower().removeprefix("bkg-")
    if not rest or len(rest) > 32 or not (rest.isascii() and rest.isalnum()):
        raise UsageError(
            f"{text!r} is not a booking's id. Ids look like bkg-7f3k9q2m.", next_command="gpu-dev book list"
        )
    return f"bkg-{rest}"
