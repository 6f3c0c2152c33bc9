"""Complaints about fields, in words for people: without patterns and the validator's own terms."""

import re
from collections.abc import Mapping
from typing import Any

from reservation_core.domain.request_terms import size_words

_PATTERN = re.compile(r"String should match pattern '(.*)'", re.DOTALL)
_ID = re.compile(r"\^([a-z]{3})-\[0-9a-z\]")
_LENGTH = re.compile(r"datetime\.timedelta\((?:(days|seconds)=)?(\d+)\)")
_SIZE = re.compile(r"(\w+) should have at (least|most) (\d+) items? after validation")
_WHOLE_NUMBER = re.compile(r"^Input should be a valid integer\b.*")
_BOUND = re.compile(r"\b(greater|less) than or equal to (?=-?\d)")
_BYTES = re.compile(r"\bat (least|most) (\d{7,})$")
_SUBJECT = re.compile(r"^(?:Input|String|List|Dictionary|Tuple|Data|Value) should ")
_PLACE = re.compile(r" at line (\d+) column (\d+)")
_OBJECT = "must be an object, as in {}"
_PLAIN = {
    "missing": "is missing",
    "extra_forbidden": "is not known here; leave it out",
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _OBJECT),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("url_parsing", "url_scheme"), "must be an address such as https://gpus.example.org"),
    "string_type": "must be a string",
    "path_type": "must be a path",
    "time_delta_parsing": "must be a number of seconds or an ISO 8601 duration such as PT4H",
}
_FORMS = {
    "^/": "must be a path that begins with /",
    "^[!-~]+$": "must be printable characters without spaces",
    "^[0-9a-f]{64}$": "must be 64 hexadecimal digits",
    r"\S": "must not be empty",
}


def complaint(error: Mapping[str, Any]) -> str:
    """An error as pydantic lists it (`type`, `msg`) as what the field must be."""
    if plain := _PLAIN.get(error["type"]):
        return plain
    text = str(error["msg"]).removeprefix("Value error, ")
    match error["type"]:
        case "string_pattern_mismatch" if found := _PATTERN.search(text):
            return _form(found[1])
        case "too_short" | "too_long" if found := _SIZE.match(text):
            return _size(*found.groups())
        case "json_invalid":
            return f"must be JSON{_json_fault(text)}"
        case _:
            text = _LENGTH.sub(_length, _WHOLE_NUMBER.sub("must be a whole number", text))
            text = _BOUND.sub(lambda bound: "at least " if bound[1] == "greater" else "at most ", text)
            return _SUBJECT.sub("must ", _BYTES.sub(_bytes, text))


def _json_fault(text: str) -> str:
    """Where a text stops being JSON."""
    found = _PLACE.search(text)
    what = "it ends too early" if "EOF" in text else "the fault is"
    return "" if found is None else f": {what} at line {found[1]}, column {found[2]}"


def _form(pattern: str) -> str:
    if known := _FORMS.get(pattern):
        return known
    if pattern.startswith("^https?://"):
        return "must be an address that begins with https:// or http://"
    if "=[" in pattern:
        return "must be a label, such as team=vision"
    if "]+@[" in pattern:
        return "must be an e-mail address"
    if found := _ID.match(pattern):
        return f"must be an id such as {found[1]}-7f3k9q2m"
    if "€" in pattern:
        return "must be an amount and a unit, such as 2.50 EUR"
    if "gpu_type:" in pattern:
        return "must be a scope such as default (everybody), user:ann, project:lab or gpu_type:h100"
    letters = "letters" if "A-Z" in pattern else "lower-case letters"
    marks = " ".join(mark for mark in "._@+-" if mark in pattern.replace("a-z", "").replace("0-9", ""))
    return f"must be a name of {letters}, digits and {marks}, with a letter or digit at both ends"


def _size(kind: str, bound: str, count: str) -> str:
    if (bound, count) == ("least", "1"):
        return "must not be empty"
    part = "character" if kind == "Value" else "entry"
    parts = "characters" if kind == "Value" else "entries"
    return f"must have at {bound} {count} {part if count == '1' else parts}"


def _bytes(found: re.Match[str]) -> str:
    """Bounds of whole MiB are of sizes; a number without a unit was meant as one with a unit."""
    bound, size = found[1], int(found[2])
    if size % 2**20 or (bound == "most" and size < 2**30):  # the latter are numbers of something
        return found[0]
    return f"at {bound} {size_words(size)}" + (", as in 64Gi or 500M" if bound == "least" else "")


def _length(found: re.Match[str]) -> str:
    return f"{found[2]} {'days' if found[1] == 'days' else 's'}"
