"""The bytes of a request to the API server, head and body; common headers are encoded once."""

import re
from collections.abc import Mapping

from yarl import URL

from reservation_core.adapters.kubernetes.api_server.requests import ApiRequest, common_headers

_PLAIN = re.compile(r"(/[A-Za-z0-9_~:-][A-Za-z0-9._~:-]*)+(\?[A-Za-z0-9._~=&%+-]*)?")
"""A path and query that need no quoting and have no dot segments."""

_LINE_ENDS = re.compile(r"[\r\n\0]")
_HAS_LENGTH = frozenset({"POST", "PUT", "PATCH"})


class RequestHeads:
    """Encodes requests to the server at `url`, whose path is a prefix of all paths."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._prefix = url.raw_path.rstrip("/")
        self._common_headers = ""
        self.set_headers(common_headers(None))

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Set the headers of all later requests. Raises ValueError for a value of more than one line."""
        if any(_LINE_ENDS.search(value) for value in headers.values()):
            raise ValueError("A header of a request to the API server has more than a line.")
        self._common_headers = _lines({"Host": self._url.host_port_subcomponent or "", **headers})

    def of(self, request: ApiRequest) -> bytes:
        """The bytes of a whole request."""
        target = self._prefix + request.target
        if not _PLAIN.fullmatch(request.target):
            target = URL(f"{self._url.origin()}{target}").raw_path_qs
        body = request.body
        length = "" if body is None and request.method not in _HAS_LENGTH else f"Content-Length: {len(body or b'')}\r\n"
        headers = self._common_headers + _lines(request.headers()) + length
        head = f"{request.method} {target} HTTP/1.1\r\n{headers}\r\n".encode()
        return head if body is None else head + body


def _lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
