"""What a client of the server can meet, each with the exit code that `gpu-dev` ends with.

The codes are a promise to scripts; `docs/reference/cli.md` lists them.
"""

from enum import IntEnum
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # For the annotation alone: `gpu-dev --help` needs the errors, not the contracts.
    from gpu_dev.wire.base import Problem


_LOG_IN = "gpu-dev login"


class ExitCode(IntEnum):
    """How `gpu-dev` ends. `gpu-dev run` ends with the job's own code once the job has one."""

    OK = 0
    JOB_FAILED = 1
    DECLINED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNAVAILABLE = 5
    AUTH = 6
    TIMEOUT = 124
    INTERRUPTED = 130
    TERMINATED = 143


class ClientError(Exception):
    """Something the caller should know. `detail` says what is wrong, `next_command` what to type next."""

    exit_code = ExitCode.REFUSED

    def __init__(self, detail: str, *, next_command: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.next_command = next_command


class UsageError(ClientError):
    """The command was not said completely or not said right."""

    exit_code = ExitCode.USAGE


class DeclinedError(ClientError):
    """Somebody was asked, and said no."""

    exit_code = ExitCode.DECLINED


class NoSuchObjectError(ClientError):
    """An id, beginning or name that fits nothing of this user."""

    exit_code = ExitCode.NOT_FOUND


class NotOwnJobError(NoSuchObjectError):
    """Only others have jobs of this name."""


class AmbiguousIdError(ClientError):
    """A beginning or name that fits more than one."""

    exit_code = ExitCode.USAGE


class UnreachableError(ClientError):
    """The server did not answer."""

    exit_code = ExitCode.UNAVAILABLE


class UnexpectedAnswerError(ClientError):
    """Something answered that does not speak as this client expects."""

    exit_code = ExitCode.UNAVAILABLE


class OlderServerError(UnexpectedAnswerError):
    """The server is older than this client, and can't do what was asked."""

    def __init__(self, what: str, server_version: str | None) -> None:
        # Loaded only here: no call needs its own version.
        import importlib.metadata

        named = "This server" if server_version is None else f"This server ({server_version})"
        super().__init__(
            f"{named} is older than this command line ({importlib.metadata.version('gpu-dev-server')}): {what}. "
            "Use a command line of the server's version, or ask an administrator to upgrade the server."
        )


class NotLoggedInError(ClientError):
    """There is no token to send, or the stored one can't be used."""

    exit_code = ExitCode.AUTH


class WaitTimeoutError(ClientError):
    """The time given with --timeout ran out; the job goes on."""

    exit_code = ExitCode.TIMEOUT


class ApiError(ClientError):
    """The server said no. `problem` is its RFC 9457 answer: title, detail, broken_rules, nearest_slots."""

    def __init__(self, problem: "Problem") -> None:
        # Other refusals name the next step in their text.
        super().__init__(problem.detail, next_command=_LOG_IN if problem.status == HTTPStatus.UNAUTHORIZED else None)
        self.problem = problem

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]
        """The code that fits the answer's HTTP status."""
        status = self.problem.status
        if status == HTTPStatus.NOT_FOUND:
            return ExitCode.NOT_FOUND
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return ExitCode.AUTH
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return ExitCode.UNAVAILABLE
        return ExitCode.REFUSED
