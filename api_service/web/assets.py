"""The static files of the pages: styles, and the scripts that `make web` builds.

An address holds a digest of the file, so browsers may cache it for ever.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api_service.requests.headers import takes_gzip

_HERE = Path(__file__).parent
_FOLDERS = (_HERE / "styles", _HERE / "built")
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_KEPT = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, plain and compressed."""

    media_type: str
    digest: str
    content: bytes
    compressed: bytes


class Assets:
    """All files, read once."""

    def __init__(self) -> None:
        self._found: dict[str, Asset] = {}
        for folder in _FOLDERS:
            for path in sorted(folder.glob("*")) if folder.is_dir() else ():
                media_type = _TYPES.get(path.suffix)
                if media_type is not None:
                    self._found[path.name] = _read(path, media_type)

    def has(self, name: str) -> bool:
        """Whether the file exists: scripts exist only where they were built."""
        return name in self._found

    def url(self, name: str) -> str:
        """The address of a file. Raises KeyError for an unknown name."""
        return f"/static/{self._found[name].digest}/{name}"

    async def serve(self, request: Request) -> Response:
        """Answer `/static/{digest}/{name}`."""
        found = self._found.get(request.path_params["name"])
        if found is None or found.digest != request.path_params["digest"]:
            raise HTTPException(404)
        headers = {"Cache-Control": _KEPT, "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}
        if takes_gzip(request.scope):
            headers["Content-Encoding"] = "gzip"
            return Response(found.compressed, media_type=found.media_type, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)


# Several applications can live in one process: files are read and compressed for the first.
@cache
def _read(path: Path, media_type: str) -> Asset:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Asset(media_type, digest, content, gzip.compress(content, 9, mtime=0))
