"""Label and field selectors of lists and watches."""

import re
from collections.abc import Callable, Mapping

from tests.kubernetes.emulated.store import ApiError, JsonObject

Matches = Callable[[JsonObject], bool]
_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^)]*)\)$")
_FIELDS: dict[str, Callable[[JsonObject], str]] = {
    "metadata.name": lambda each: each["metadata"]["name"],
    "metadata.namespace": lambda each: each["metadata"].get("namespace", ""),
    "spec.nodeName": lambda each: each.get("spec", {}).get("nodeName", ""),
    "spec.schedulerName": lambda each: each.get("spec", {}).get("schedulerName", ""),
    "spec.restartPolicy": lambda each: each.get("spec", {}).get("restartPolicy", ""),
    "spec.unschedulable": lambda each: str(bool(each.get("spec", {}).get("unschedulable"))).lower(),
    "regarding.kind": lambda each: each.get("regarding", {}).get("kind", ""),
    "regarding.name": lambda each: each.get("regarding", {}).get("name", ""),
    "type": lambda each: each.get("type", ""),
    "status.phase": lambda each: each.get("status", {}).get("phase", ""),
}


def selector(query: Mapping[str, str]) -> Matches:
    """What a request's `labelSelector` and `fieldSelector` let through. Raises ApiError 400."""
    labels = [_label_term(term) for term in _terms(query.get("labelSelector", ""))]
    fields = [_field_term(term) for term in _terms(query.get("fieldSelector", ""))]
    return lambda each: (
        all(term(each["metadata"].get("labels") or {}) for term in labels) and all(term(each) for term in fields)
    )


def _terms(text: str) -> list[str]:
    """Split at commas that are not inside parentheses."""
    return [term.strip() for term in re.split(r",(?![^(]*\))", text) if term.strip()]


def _label_term(term: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.match(term):
        key, how, listed = found.groups()
        values = {value.strip() for value in listed.split(",")}
        if how == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if "!=" in term:
        key, value = (part.strip() for part in term.split("!=", 1))
        return lambda labels: labels.get(key) != value
    if "=" in term:
        key, value = (part.strip() for part in re.split("==?", term, maxsplit=1))
        return lambda labels: labels.get(key) == value
    if term.startswith("!"):
        return lambda labels: term[1:] not in labels
    if " " in term:
        raise ApiError(400, "BadRequest", f"unable to parse requirement: {term}")
    return lambda labels: term in labels


def _field_term(term: str) -> Matches:
    key, sign, value = re.split("(!=|==?)", term, maxsplit=1)
    if key not in _FIELDS:
        raise ApiError(400, "BadRequest", f"field label not supported: {key}")
    read = _FIELDS[key]
    if sign == "!=":
        return lambda each: bool(read(each) != value)
    return lambda each: bool(read(each) == value)
