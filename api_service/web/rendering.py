"""Render templates into pages, with the headers of every page."""

import gzip
import json
import re
from datetime import datetime
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import Response

from api_service.requests.headers import takes_gzip
from api_service.web import words
from api_service.web.assets import Assets
from api_service.web.finding.command_pages import text_of_pages
from api_service.web.finding.site_pages import keys_of
from api_service.web.jobs.expected_starts import expected_start, keeps_promise
from reservation_core.domain import status_words
from reservation_core.domain.policy.prices import rounded_cost
from reservation_core.domain.request_terms import size_words
from reservation_core.domain.time_words import rfc3339

_TEMPLATES = Path(__file__).parent / "templates"
_COMPRESS_FROM = 1024
_TABLE = re.compile(r"(<table>.*?</thead>)(.*?</table>)", re.DOTALL)
_HEADING = re.compile(r"<th scope=\"col\"[^>]*>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_CELL = re.compile(r"<t[dh]\b")


class Templates:
    """The templates, compiled once. Values are escaped, and an unknown name is an error."""

    def __init__(self, assets: Assets) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            cache_size=-1,
        )
        self._environment.globals["asset"] = assets.url
        self._environment.globals["has_asset"] = assets.has
        self._environment.globals["keys_of"] = keys_of
        self._environment.globals["queue_words"] = status_words.queue_words
        self._environment.globals["subject_status"] = status_words.subject_status
        self._environment.filters["span"] = words.span
        self._environment.filters["with_code"] = words.with_code
        self._environment.filters["booking_status"] = status_words.booking_status
        self._environment.filters["window_status"] = status_words.window_status
        self._environment.filters["size"] = size_words
        self._environment.filters["wanted_gpus"] = lambda asked: words.wanted_gpus(
            asked.gpus, asked.gpu_type, asked.nodes
        )
        self._environment.filters["amount"] = words.amount
        self._environment.filters["cost"] = lambda cost: rounded_cost(cost.amount, cost.unit)
        self._environment.filters["wire"] = rfc3339
        self._environment.filters["expected_start"] = expected_start
        self._environment.tests["kept"] = keeps_promise
        self._environment.tests["impossible"] = status_words.cannot_start

    def text(self, name: str, *, zone: ZoneInfo, now: datetime, **context: Any) -> str:
        """A rendered template; `now` and `zone` are for how times are written."""
        context |= {
            "now": now,
            "zone": zone.key,
            "clock": lambda when: words.clock(when, zone, now),
            "full_clock": lambda when: words.full_clock(when, zone),
            "time": lambda when: words.time_element(when, zone, now),
            "cell_time": lambda when: words.time_element(when, zone, now, zoned=False),
            "zoned_clock": lambda when: words.zoned_clock(when, zone, now),
            "clock_range": lambda start, end: words.clock_range(start, end, zone, now),
            "time_range": lambda start, end: words.range_elements(start, end, zone, now),
            "until": lambda when: words.until(when, now),
            "in_zone": lambda text: words.in_zone(text_of_pages(text), zone, now),
        }
        return label_cells(self._environment.get_template(name).render(context))


def label_cells(text: str) -> str:
    """HTML whose table cells carry their column's heading (`data-label`): on a phone, a row is a card.

    Headings that only screen readers get give no label.
    """

    def label_table(table: re.Match[str]) -> str:
        labels = [
            "" if "<span" in heading else _TAG.sub("", heading).replace('"', "&quot;")
            for heading in _HEADING.findall(table[1])
        ]

        def label_row(row: re.Match[str]) -> str:
            cells = iter(labels)
            return _CELL.sub(lambda cell: f'{cell[0]} data-label="{next(cells, "")}"', row[0])

        return table[1] + _ROW.sub(label_row, table[2])

    return _TABLE.sub(label_table, text) if "<table>" in text else text


def new_nonce() -> str:
    """A value that a page's own scripts and styles carry."""
    return token_urlsafe(16)


def html(request: Request, text: str, *, nonce: str, status: int = 200) -> Response:
    """A page or a part of one. It loads nothing from elsewhere, can't be framed, and is not cached."""
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Vary": "Accept-Encoding, HX-Request",
    }
    return _compressed(request, text.encode(), "text/html", headers, status)


def json_data(request: Request, value: object) -> Response:
    """Data for a page's script."""
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}
    return _compressed(request, content, "application/json", headers, 200)


def _compressed(request: Request, content: bytes, media_type: str, headers: dict[str, str], status: int) -> Response:
    if len(content) >= _COMPRESS_FROM and takes_gzip(request.scope):
        content = gzip.compress(content, 5)
        headers["Content-Encoding"] = "gzip"
    return Response(content, status, media_type=media_type, headers=headers)
