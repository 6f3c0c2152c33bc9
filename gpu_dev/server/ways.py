"""Ways to sign in to a server without a given token; the login file remembers one, to sign in again.

A remembered way names the source of the proof, and is no secret itself.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

DEFAULT_SERVICE_ACCOUNT_TOKEN = "/var/run/secrets/gpu-dev/token"  # noqa: S105 - a path, not a token


class WayKind(StrEnum):
    """The source of the proof."""

    AWS = "aws"
    OIDC_FILE = "oidc-file"
    OIDC_COMMAND = "oidc-command"
    GCP = "gcp"
    KUBERNETES = "kubernetes"


class Way(NamedTuple):
    """A way to sign in. `where` is AWS's region (None: its global endpoint), a file or a command; `server_id` is the
    server's name for itself, if that is not its address.
    """

    kind: WayKind
    where: str | None = None
    server_id: str | None = None

    def remembered(self) -> dict[str, Any]:
        """The entry for the login file."""
        return self._asdict()


def way_of(remembered: object) -> Way | None:
    """Read an entry of the login file; None for an unknown way."""
    if not isinstance(remembered, Mapping) or set(remembered) != {*Way._fields}:
        return None
    where, server_id = remembered["where"], remembered["server_id"]
    if remembered["kind"] not in list(WayKind) or not all(x is None or isinstance(x, str) for x in (where, server_id)):
        return None
    return Way(WayKind(remembered["kind"]), where, server_id)
