"""Ask before something is lost: the same page everywhere, which scripts show as a dialog."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from api_service.web.visit import Visit


def ask(
    visit: Visit,
    title: str,
    sentences: Sequence[str],
    *,
    words: str,
    back: str,
    fields: Mapping[str, str | Sequence[str]] | None = None,
    boxes: Sequence[tuple[str, str, str]] = (),
    reason: bool = False,
) -> Response:
    """Ask `title`, with what is lost in `sentences`; the form's button `words` posts `fields` to this very address.

    `boxes`: the name, the label and a hint of each further choice; `reason`: whether there is a field for one.
    """
    context: dict[str, Any] = {
        "title": title,
        "sentences": sentences,
        "action": quote(visit.request.scope["path"]),
        "fields": [
            (name, value)
            for name, given in (fields or {}).items()
            for value in ([given] if isinstance(given, str) else given)
        ],
        "boxes": boxes,
        "reason": reason,
        "words": words,
        "back": back,
    }
    return visit.part("_confirm.html", **context) if visit.partial else visit.page("confirm.html", **context)
