"""ETag and If-Match: a change is made only to what the caller has seen."""

import re

from starlette.requests import Request

from api_service.problems import ProblemError
from reservation_core.ports.jobs.reservations import JobView

_TAGS = re.compile(r'(?:W/)?("[^"]*")')
_ETAG = re.compile(r'"([1-9][0-9]{0,8})"')


def etag(view: JobView) -> str:
    """The version of a job, as a strong entity tag."""
    return version_tag(view.reservation.version)


def version_tag(version: int) -> str:
    """A version as a strong entity tag."""
    return f'"{version}"'


def is_known(request: Request, tag: str) -> bool:
    """Whether the caller already has the answer of this tag (If-None-Match). Tags are compared weakly (RFC 9110)."""
    given = ", ".join(request.headers.getlist("if-none-match"))
    return given.strip() == "*" or tag.removeprefix("W/") in _TAGS.findall(given)


def expected_version(request: Request) -> int | None:
    """The version in If-Match; None without one and for `*`. Raises ProblemError (400) for anything else."""
    values = request.headers.getlist("if-match")
    if not values or values == ["*"]:
        return None
    found = _ETAG.fullmatch(values[0].strip()) if len(values) == 1 else None
    if found is None:
        detail = (
            'If-Match must be the ETag of an earlier answer, such as "3", or *. Leave it out to change any version.'
        )
        raise ProblemError(400, "bad_if_match", detail)
    return int(found[1])
