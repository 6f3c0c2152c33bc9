"""Syntax of image names: a pod with an impossible name would wait for ever."""

import re
from functools import lru_cache

_LONGEST = 512
_LONGEST_REPOSITORY = 255
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]{{1,5}})?"
_REFERENCE = re.compile(
    rf"((?:{_DOMAIN}/)?{_PART}(?:/{_PART})*)"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)
_BARE_DIGEST = re.compile(r"[0-9a-f]{64}")


@lru_cache(maxsize=256)
def is_image_reference(text: str) -> bool:
    """Whether this is `[registry/]name[:tag][@digest]`, as container runtimes read it."""
    if len(text) > _LONGEST or _BARE_DIGEST.fullmatch(text):
        return False
    match = _REFERENCE.fullmatch(text)
    return match is not None and len(match[1]) <= _LONGEST_REPOSITORY
