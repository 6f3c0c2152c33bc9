"""The bytes of a request to the API server: head and body in one; what all have in common is put together once."""

import re
from collections.abc import Mapping

from yarl import URL

from reservation_core.adapters.kubernetes.api_server.requests import ApiRequest, headers_of_all

_PLAIN = re.compile(r"(/[A-Za-z0-9_~:-][A-Za-z0-9._~:-]*)+(\?[A-Za-z0-9._~=&%+-]*)?")
"""A path and query that mean what they say: nothing to be quoted, no way up."""

_LINE_ENDS = re.compile(r"[\r\n\0]")
_HAS_LENGTH = frozenset({"POST", "PUT", "PATCH"})


class RequestHeads:
    """Of requests to the server at `url`, which may have a path that all paths begin with."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._before = url.raw_path.rstrip("/")
        self._of_all = ""
        self.say(headers_of_all(None))

    def say(self, headers: Mapping[str, str]) -> None:
        """Have every request from now on say these. Raises ValueError for one that is more than a line."""
        if any(_LINE_ENDS.search(value) for value in headers.values()):
            raise ValueError("A header of a request to the API server has more than a line.")
        self._of_all = _lines({"Host": self._url.host_port_subcomponent or "", **headers})

    def of(self, request: ApiRequest) -> bytes:
        """A whole request as it is sent."""
        target = request.target
        target = self._before + target if _PLAIN.fullmatch(target) else self._quoted(target)
        body = request.body
        length = "" if body is None and request.method not in _HAS_LENGTH else f"Content-Length: {len(body or b'')}\r\n"
        head = f"{request.method} {target} HTTP/1.1\r\n{self._of_all}{_lines(request.headers())}{length}\r\n".encode()
        return head if body is None else head + body

    def _quoted(self, target: str) -> str:
        return URL(f"{self._url.origin()}{self._before}{target}").raw_path_qs


def _lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
