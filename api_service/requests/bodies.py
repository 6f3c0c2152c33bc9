"""Reading request bodies: bounded while they arrive, then strictly parsed.

JSON as in RFC 8259: UTF-8, no NaN or Infinity, no name twice in one object. Python and pydantic accept these silently
(the last of two equal names wins), so a proxy could read a body in another way than this server.
"""

import json
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from api_service.problems import ProblemError, of_validation
from api_service.requests import headers

M = TypeVar("M", bound=BaseModel)


class _TwiceError(ValueError):
    """A name stands twice in one object."""


async def read(request: Request, model: type[M], *, limit: int) -> M:
    """Read the body as a model.

    Raises ProblemError: 413 too large, 415 not JSON, 400 malformed, 422 invalid for the model.
    """
    return parse(await read_raw(request, limit=limit), model)


async def read_raw(request: Request, *, limit: int) -> bytes:
    """Read the body of JSON as it came, for `parse`. Raises ProblemError: 413 too large, 415 not JSON."""
    content_type = headers.first(request.scope, b"content-type") or ""
    if content_type != "application/json" and content_type.split(";", 1)[0].strip().lower() != "application/json":
        detail = "Send JSON, with the header `Content-Type: application/json`."
        raise ProblemError(415, "unsupported_media_type", detail)
    return await read_bounded(request, limit)


async def read_optional(request: Request, model: type[M], *, limit: int) -> M:
    """Read the body as a model; no body at all means the model's defaults. Raises like `read`."""
    if request.headers.get("content-length") in (None, "0") and "transfer-encoding" not in request.headers:
        return model()
    return await read(request, model, limit=limit)


def parse(raw: bytes, model: type[M]) -> M:
    """Read JSON as a model. Raises ProblemError: 400 malformed, 422 invalid for the model."""
    try:
        value = _STRICT_JSON.decode(raw.decode("utf-8"))
        if b"\\u" in raw:
            # Half a surrogate pair can be escaped, but neither stored nor sent back.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except _TwiceError as error:
        raise ProblemError(
            400, "malformed_json", "A JSON object has the same name twice. Send each name once."
        ) from error
    except UnicodeError as error:
        raise ProblemError(400, "malformed_json", "The body is not valid UTF-8. Encode it as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        # The parser's message would quote the body.
        raise ProblemError(400, "malformed_json", "The body is not well-formed JSON (RFC 8259). Correct it.") from error
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise of_validation(error) from None


async def read_bounded(request: Request, limit: int) -> bytes:
    """Read the raw body. Raises ProblemError: 413 too large, 415 compressed, 400 incomplete."""
    if (headers.first(request.scope, b"content-encoding") or "identity").lower() != "identity":
        raise ProblemError(415, "unsupported_media_type", "Compressed bodies are not accepted. Send plain JSON.")
    announced = headers.first(request.scope, b"content-length")
    if announced is not None and announced.isdecimal() and int(announced[:20]) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            detail = "The connection ended before the body did. Send it again."
            raise ProblemError(400, "incomplete_body", detail)
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


_STRICT_JSON = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


def _too_large(limit: int) -> ProblemError:
    return ProblemError(413, "body_too_large", f"The body has more than {limit} bytes. Send a smaller one.")
