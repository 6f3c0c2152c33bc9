"""Ids as people type them: with or without `job-`, cut short as long as only one job fits.

Ids are Crockford base 32: read aloud, `O` is 0 and `I` and `L` are 1, and case does not matter.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from gpu_dev.errors import AmbiguousIdError, NoSuchObjectError, UsageError
from reservation_core.domain.similar_names import did_you_mean

PREFIX = "job-"
FULL_LENGTH = 8
MOST_DIGITS = 4
SEARCHED = 5_000
_SPOKEN = str.maketrans({"o": "0", "i": "1", "l": "1"})
_SHOWN = 10


def normal_id(text: str) -> str:
    """Normalise a typed job id to `job-` and lower-case base 32. Raises NoSuchObjectError."""
    rest = text.strip().lower().removeprefix(PREFIX).translate(_SPOKEN)
    if not rest or len(rest) > 32 or not (rest.isascii() and rest.isalnum()):
        raise NoSuchObjectError(
            f"{text!r} is neither a job's id, such as job-7f3k9q2m, nor the name of a job of yours.",
            next_command="gpu-dev list",
        )
    return PREFIX + rest


def element_of(text: str) -> tuple[str, int] | None:
    """The array and the index that `ARRAY.INDEX` names; None for what has another form."""
    array, dot, index = text.strip().rpartition(".")
    is_index = index.isascii() and index.isdecimal() and len(index) <= MOST_DIGITS
    return (array, int(index)) if dot and array and is_index else None


def read_otherwise(text: str) -> bool:
    """Whether the normal form has other letters or digits than what was typed."""
    return normal_id(text) != PREFIX + text.strip().lower().removeprefix(PREFIX)


def is_whole(job_id: str) -> bool:
    """Whether an id in its normal form is whole, so that nobody need be asked which job is meant."""
    return len(job_id) >= len(PREFIX) + FULL_LENGTH


def resolve_id(text: str, known: Iterable[str], *, among_known: bool = False) -> str:
    """The one id that `text` stands for.

    `known` are the ids to choose from, newest first; it is read only when `text` is not whole, or with `among_known`,
    and only the newest 5,000. Raises NoSuchObjectError when none fits, AmbiguousIdError (with the candidates) when
    several do.
    """
    wanted = normal_id(text)
    if is_whole(wanted) and not among_known:
        return wanted
    searched = list(islice(known, SEARCHED))
    fitting = [job_id for job_id in searched if job_id.startswith(wanted)]
    if wanted in fitting:
        return wanted
    match fitting:
        case []:
            bound = f" among your newest {SEARCHED}" if len(searched) == SEARCHED else ""
            raise NoSuchObjectError(
                f"You have no job with the id or name {text.strip()!r}{bound}.", next_command="gpu-dev list --all"
            )
        case [only]:
            return only
        case _:
            raise AmbiguousIdError(f"{wanted} fits {len(fitting)} jobs: {_listed(fitting)}. Type more of the id.")


def named_job(name: str, jobs: Sequence[tuple[str, bool]]) -> str:
    """The job that a name stands for; `jobs` of that name (at least one, newest first): ids, and whether each is open.

    It is the only one that is open, or else the newest. Raises AmbiguousIdError when several are open.
    """
    still_open = [job_id for job_id, is_open in jobs if is_open]
    if len(still_open) > 1:
        raise AmbiguousIdError(f"{len(still_open)} open jobs are named {name}: {_listed(still_open)}. Type an id.")
    return still_open[0] if still_open else jobs[0][0]


def named_id(
    text: str,
    prefix: str,
    known: Iterable[tuple[str, str | None]],
    what: str,
    listed_by: str,
    *,
    whose: str = " of yours",
) -> str:
    """The id that `text` stands for: an id, one without its prefix, or a name; `known` are ids with names.

    Raises NoSuchObjectError, with the command `listed_by` that lists those there are, and AmbiguousIdError.
    """
    typed = text.strip()
    if typed.lower().startswith(prefix):
        return typed.lower()
    listed = list(known)
    fitting = [known_id for known_id, name in listed if name == typed or known_id == prefix + typed.lower()]
    match fitting:
        case []:
            meant = did_you_mean(typed, {name for _, name in listed if name})
            raise NoSuchObjectError(
                f"There is no {what}{whose} with the id or name {typed!r}.{meant}", next_command=listed_by
            )
        case [only]:
            return only
        case _:
            raise AmbiguousIdError(f"{typed!r} fits {len(fitting)}: {_listed(fitting)}. Type an id.")


def require_known(name: str, known: Iterable[str], what: str, listed_by: str) -> None:
    """Raise NoSuchObjectError, with the command `listed_by`, unless a name is one of those: asked before a question."""
    names = list(known)
    if name not in names:
        raise NoSuchObjectError(f"There is no {what} {name!r}.{did_you_mean(name, names)}", next_command=listed_by)


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_SHOWN]) + (" …" if len(ids) > _SHOWN else "")


def whole_booking_id(text: str) -> str:
    """A booking's id as typed, with or without `bkg-`. Raises UsageError for what is none."""
    rest = text.strip().lower().removeprefix("bkg-")
    if not rest or len(rest) > 32 or not (rest.isascii() and rest.isalnum()):
        raise UsageError(
            f"{text!r} is not a booking's id. Ids look like bkg-7f3k9q2m.", next_command="gpu-dev book list"
        )
    return f"bkg-{rest}"
