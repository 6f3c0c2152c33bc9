"""Answers as CSV (RFC 4180), by `?format=csv` or the Accept header."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from fastapi import Request
from starlette.responses import Response

CSV = "text/csv"
OR_CSV: dict[int | str, dict[str, Any]] = {200: {"content": {CSV: {"schema": {"type": "string"}}}}}
"""For the documents of calls that answer CSV, too."""
AnswerFormat = Literal["json", "csv"]
FORMAT_HELP = "By default what the Accept header asks for, else JSON."


def wants_csv(request: Request, asked: AnswerFormat | None) -> bool:
    """Whether the caller wants CSV rather than JSON."""
    if asked is not None:
        return asked == "csv"
    return any(part.split(";")[0].strip().lower() == CSV for part in request.headers.get("accept", "").split(","))


def csv_answer(text: str) -> Response:
    """An answer that is a table."""
    return Response(text, media_type=f"{CSV}; charset=utf-8")


def table(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A table; None is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue()
