"""Tokens of jobs: programs inside a job extend it with one, and can do nothing else.

A token is computed, not stored: it names the job and its attempt, and a keyed digest proves that the server made it.
"""

import hmac
from dataclasses import dataclass, field

from reservation_core.domain.model import Reservation

TOKEN_VARIABLE = "GPU_DEV_JOB_TOKEN"  # noqa: S105 - a name, not a secret
SERVER_VARIABLE = "GPU_DEV_JOB_SERVER"
_PREFIX = "gpudev-job"


@dataclass(frozen=True, slots=True)
class JobAccess:
    """The key of all tokens (32 bytes), and the server's address for programs in jobs; None: they know it."""

    key: bytes = field(repr=False)
    server: str | None = None

    def variables_of(self, job: Reservation) -> dict[str, str]:
        """The variables of a job's programs."""
        server = {} if self.server is None else {SERVER_VARIABLE: self.server}
        return {TOKEN_VARIABLE: job_token(self.key, job.id, job.attempt), **server}


def is_job_token(text: str) -> bool:
    """Whether a text is meant as a job's token."""
    return text.startswith(f"{_PREFIX}.")


def job_token(key: bytes, job_id: str, attempt: int) -> str:
    """The token of an attempt of a job."""
    digest = hmac.digest(key, f"{job_id}.{attempt}".encode(), "sha256").hex()
    return f"{_PREFIX}.{job_id}.{attempt}.{digest}"


def read_job_token(key: bytes, text: str) -> tuple[str, int] | None:
    """The job and the attempt of a token; None for one that this key did not make."""
    prefix, _, rest = text.partition(".")
    match rest.rsplit(".", 2):  # the id of an array's element has a dot
        case [job_id, number, _] if prefix == _PREFIX and number.isascii() and number.isdigit():
            attempt = int(number[:9])
        case _:
            return None
    return (job_id, attempt) if hmac.compare_digest(text.encode(), job_token(key, job_id, attempt).encode()) else None
