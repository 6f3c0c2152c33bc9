"""Pages in place of commands: what the server says names commands, and a reader of pages wants a page."""

import re
from collections.abc import Sequence

from api_service.web.finding.site_pages import SITE_PAGES, SitePage

_SENTENCES = re.compile(r"(?<=[.!?]) (?=\S)")
_COMMAND = re.compile(r"`gpu-dev ([^`]+)`")
_SAYS_MORE = re.compile(r"[;(]|, or |`[^`]*`,")
_OPENED = {"uncordon": "uncordoned", "unfence": "unfenced", "release": "released"}
_OPEN_AGAIN = re.compile(rf"`gpu-dev nodes ({'|'.join(_OPENED)}) [^`]+`")
_WHY_AWAY = re.compile(r"; `gpu-dev nodes` says why they are away")
"""Pages show the reason with each node."""
_ADDRESSES = {
    "list": "/jobs",
    "book list": "/bookings",
    "disk list": "/disks",
    "disk create": "/disks",
    "tokens list": "/account",
    "keys list": "/account#keys",
    "secret list": "/account#secrets",
    "secret set": "/account#secrets",
    "policy list": "/account#rules",
    "notify targets": "/account",
    "gpus": "/now",
    "users me": "/account",
    "users list": "/admin/users",  # only administrators are told of it and of those below
    "users add": "/admin/users",
    "users enable": "/admin/users",
    "projects create": "/admin/projects",
    "maintenance list": "/admin/maintenance",
    "pods": "/admin/pods",
}
_PAGES = {page.address: page for page in SITE_PAGES}


def without_commands(text: str) -> str:
    """The text without sentences whose commands all have pages for everybody, see `pages_for`.

    A sentence stays that says something else, too, and so does a text of nothing else.
    """
    kept = [sentence for sentence in _SENTENCES.split(text) if not _replaced(sentence)]
    return " ".join(kept) or text


def text_of_pages(text: str) -> str:
    """A reason that names a command in the middle of a sentence, in words of pages; other texts stay."""
    return _OPEN_AGAIN.sub(lambda found: f"it is {_OPENED[found[1]]}", _WHY_AWAY.sub("", text))


def pages_for(text: str) -> Sequence[SitePage]:
    """The pages for the sentences that `without_commands` leaves out."""
    named = [page for sentence in _SENTENCES.split(text) for page in _replaced(sentence)]
    return list(dict.fromkeys(named))


def _replaced(sentence: str) -> Sequence[SitePage]:
    if _SAYS_MORE.search(sentence):
        return []
    pages = [_page(command) for command in _COMMAND.findall(sentence)]
    return [page for page in pages if page is not None] if None not in pages else []


def _page(command: str) -> SitePage | None:
    if command == "nodes":  # others, such as `nodes cordon`, do what no such page does
        return _PAGES["/now"]
    return next(
        (_PAGES[address] for start, address in _ADDRESSES.items() if f"{command} ".startswith(f"{start} ")), None
    )
