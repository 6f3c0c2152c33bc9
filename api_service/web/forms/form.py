"""Submitted forms: fields as text, bounded."""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

from starlette.requests import Request

from api_service.problems import ProblemError
from api_service.requests import headers
from api_service.requests.bodies import read_bounded
from reservation_core.domain.short_durations import seconds_in

_MOST_FIELDS = 500
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_TYPE = "application/x-www-form-urlencoded"


class Form:
    """The fields of a form. Values are stripped; an empty field counts as absent."""

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self._fields = fields

    def get(self, name: str) -> str | None:
        values = self._fields.get(name, ())
        return (values[0].strip() or None) if values else None

    def text(self, name: str) -> str | None:
        """A field's value with its spaces and line ends, the latter as `\\n`."""
        values = self._fields.get(name, ())
        return (values[0].replace("\r\n", "\n") or None) if values else None

    def all(self, name: str) -> list[str]:
        """Every value of a field that may occur several times."""
        return [value for field in self._fields.get(name, ()) if (value := field.strip())]

    def has(self, name: str) -> bool:
        """Whether a box was ticked."""
        return self.get(name) is not None

    def number(self, name: str, words: str) -> int | None:
        """A whole number. Raises ProblemError (422) for other text; `words` is the field's label."""
        value = self.get(name)
        if value is None:
            return None
        if not value.isascii() or not value.removeprefix("-").isdecimal() or len(value) > 18:
            raise ProblemError(422, "invalid_request", f"{words} must be a whole number, such as 4.")
        return int(value)

    def decimal(self, name: str, words: str) -> float | None:
        """A number. Raises ProblemError (422) for other text; `words` is the field's label."""
        value = self.get(name)
        if value is None:
            return None
        if not _DECIMAL.fullmatch(value):
            raise ProblemError(422, "invalid_request", f"{words} must be a number, such as 40 or 2.5.")
        return float(value)

    def duration(self, name: str) -> int | str | None:
        """A duration as REST takes it: the seconds of `1h30m`. REST reads other text (`PT4H`) or refuses it."""
        value = self.get(name)
        if value is None:
            return None
        seconds = seconds_in(value)
        return value if seconds is None else seconds

    def shown(self) -> dict[str, str]:
        """The input, to be shown again."""
        return {name: values[0] for name, values in self._fields.items() if values}


async def read_form(request: Request, limit: int) -> Form:
    """The submitted form. Raises ProblemError: 413 too large, 415 no form, 400 not readable."""
    sent = (headers.first(request.scope, b"content-type") or "").split(";", 1)[0].strip().lower()
    if sent not in ("", _TYPE):
        raise ProblemError(415, "unsupported_media_type", f"Send the form as {_TYPE}.")
    raw = await read_bounded(request, limit)
    try:
        fields = parse_qs(raw.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:
        detail = "The form can't be read. Reload the page and send it again."
        raise ProblemError(400, "malformed_form", detail) from error
    if any("\x00" in value for values in fields.values() for value in values):
        raise ProblemError(400, "malformed_form", "A field has a character that is not allowed in text. Remove it.")
    return Form(fields)
