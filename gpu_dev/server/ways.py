"""How somebody signs in to a server without a token that was given to them; remembered, so that it can be done again.

The remembered way says where to look, and is no secret itself.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

DEFAULT_SERVICE_ACCOUNT_TOKEN = "/var/run/secrets/gpu-dev/token"  # noqa: S105 - where it is, not what


class WayKind(StrEnum):
    """Where the proof comes from."""

    AWS = "aws"
    OIDC_FILE = "oidc-file"
    OIDC_COMMAND = "oidc-command"
    GCP = "gcp"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class Way:
    """One way. `where` is AWS's region (none: its global endpoint), a file, a command; `server_id` is what the server
    calls itself where that is not its address.
    """

    kind: WayKind
    where: str | None = None
    server_id: str | None = None

    def remembered(self) -> dict[str, Any]:
        """As it is kept in the login file."""
        return asdict(self)


def way_of(remembered: object) -> Way | None:
    """What the login file says; None for what this program does not know."""
    if not isinstance(remembered, Mapping) or set(remembered) != {field.name for field in fields(Way)}:
        return None
    where, server_id = remembered["where"], remembered["server_id"]
    if remembered["kind"] not in list(WayKind) or not all(x is None or isinstance(x, str) for x in (where, server_id)):
        return None
    return Way(WayKind(remembered["kind"]), where, server_id)
