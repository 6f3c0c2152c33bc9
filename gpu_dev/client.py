"""The typed client: one method for each call of the REST interface, typed messages in and out.

Errors are those of `gpu_dev.errors`; times are UTC datetimes, durations timedeltas. Lists are read page by page as they
are used.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from gpu_dev.calls.calls import PAGE, Calls
from gpu_dev.errors import ClientError, OlderServerError
from gpu_dev.server.exchange import read_answer, version_of
from gpu_dev.server.streams import ResumableLog, follow_events, follow_log, read_events, read_log
from gpu_dev.wire.audit_log import JobEvent
from gpu_dev.wire.base import Page
from gpu_dev.wire.dead_letters import DeadLetterOut, Redrive, Redriven
from gpu_dev.wire.jobs import Job, JobExtend, JobSpec, JobSubmit, JobVerdict, QueuePage
from gpu_dev.wire.nodes import GpuOut, GpuQuarantine, NodeCordon, NodeFence, NodeOut, UnknownPodOut
from gpu_dev.wire.people import UserCreate, UserDisabled, UserOut
from reservation_core.domain.statuses import JobStatus

if TYPE_CHECKING:
    from gpu_dev.calls.booking_calls import BookingCalls
    from gpu_dev.calls.disk_calls import DiskCalls
    from gpu_dev.calls.event_calls import EventCalls
    from gpu_dev.calls.file_calls import FileCalls
    from gpu_dev.calls.key_calls import KeyCalls
    from gpu_dev.calls.maintenance_calls import MaintenanceCalls
    from gpu_dev.calls.notice_calls import NoticeCalls
    from gpu_dev.calls.policy_calls import PolicyCalls
    from gpu_dev.calls.secret_calls import SecretCalls
    from gpu_dev.calls.session_calls import SessionCalls
    from gpu_dev.calls.simulation_calls import SimulationCalls
    from gpu_dev.calls.use_calls import UseCalls
    from gpu_dev.wire.people import TokenCreate, TokenCreated, TokenOut, TokensRevoked

QUIET_S = 1.0

_ACCEPTED = 202


class GpuDevClient(Calls):
    """A user's view of one server. Use it as a context manager, or `close` it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def server(self) -> str:
        """The server's base URL."""
        return self._exchange.server

    def close(self) -> None:
        self._exchange.close()

    def pause(self, seconds: float) -> None:
        """Wait before asking again."""
        self._exchange.sleep(seconds)

    @cached_property
    def bookings(self) -> "BookingCalls":
        """Bookings, free slots and availability."""
        from gpu_dev.calls.booking_calls import BookingCalls

        return BookingCalls(self._exchange)

    @cached_property
    def policy(self) -> "PolicyCalls":
        """Rules, projects, and who has used how much."""
        from gpu_dev.calls.policy_calls import PolicyCalls

        return PolicyCalls(self._exchange)

    @cached_property
    def simulations(self) -> "SimulationCalls":
        """How long jobs would have waited."""
        from gpu_dev.calls.simulation_calls import SimulationCalls

        return SimulationCalls(self._exchange)

    @cached_property
    def use(self) -> "UseCalls":
        """How GPUs are used."""
        from gpu_dev.calls.use_calls import UseCalls

        return UseCalls(self._exchange)

    @cached_property
    def maintenance(self) -> "MaintenanceCalls":
        """Maintenance windows."""
        from gpu_dev.calls.maintenance_calls import MaintenanceCalls

        return MaintenanceCalls(self._exchange)

    @cached_property
    def record(self) -> "EventCalls":
        """The audit log: actors, actions, subjects, times and reasons."""
        from gpu_dev.calls.event_calls import EventCalls

        return EventCalls(self._exchange)

    @cached_property
    def notices(self) -> "NoticeCalls":
        """Targets and preferences of notifications."""
        from gpu_dev.calls.notice_calls import NoticeCalls

        return NoticeCalls(self._exchange)

    @cached_property
    def sessions(self) -> "SessionCalls":
        """Programs, ports and SSH in running jobs."""
        from gpu_dev.calls.session_calls import SessionCalls

        return SessionCalls(self._exchange)

    @cached_property
    def keys(self) -> "KeyCalls":
        """SSH keys."""
        from gpu_dev.calls.key_calls import KeyCalls

        return KeyCalls(self._exchange)

    @cached_property
    def secrets(self) -> "SecretCalls":
        """Secrets of your jobs."""
        from gpu_dev.calls.secret_calls import SecretCalls

        return SecretCalls(self._exchange)

    @cached_property
    def disks(self) -> "DiskCalls":
        """Disks, which outlive jobs."""
        from gpu_dev.calls.disk_calls import DiskCalls

        return DiskCalls(self._exchange)

    @cached_property
    def files(self) -> "FileCalls":
        """Folders that are sent for jobs, and what jobs have kept."""
        from gpu_dev.calls.file_calls import FileCalls

        return FileCalls(self._exchange)

    # jobs

    def submit(self, request: JobSubmit, *, idempotency_key: str | None = None) -> Job:
        """Request GPUs. All attempts of this call send the same key, which is made here unless given."""
        return self._post(Job, "/v1/jobs", request, idempotency_key=idempotency_key)

    def would_submit(self, request: JobSubmit) -> JobVerdict:
        """The answer that `submit` would lead to now; nothing is submitted. A refusal is that of `submit`."""
        answer = self._exchange.send("POST", "/v1/jobs", body=request, params={"dry_run": "true"})
        if answer.status == _ACCEPTED:
            # A server that doesn't know the parameter has submitted the job.
            job_id = read_answer(Job, answer.content).id
            try:
                self.cancel(job_id)
            except ClientError as error:
                error.next_command = f"gpu-dev show {job_id}"
                raise
            raise OlderServerError("it has no dry runs, and the job was cancelled at once", version_of(answer))
        return read_answer(JobVerdict, answer.content)

    def job(self, job_id: str) -> Job:
        return self.job_with_etag(job_id)[0]

    def job_with_etag(self, job_id: str) -> tuple[Job, str | None]:
        """A job and its ETag, to give as `if_match` when a change must not overwrite another one."""
        response = self._exchange.send("GET", _job_path(job_id))
        return read_answer(Job, response.content), response.headers.get("etag")

    def job_spec(self, job_id: str) -> JobSpec:
        """A job's request; administrators see only the names of another user's variables."""
        return self._get(JobSpec, f"{_job_path(job_id)}/spec")

    def jobs(
        self, statuses: Iterable[JobStatus] = (), *, user: str | None = None, shared: bool = False
    ) -> Iterator[Job]:
        """Your jobs, newest first; for administrators the jobs of all users, or of `user`.

        With `shared` the jobs of others (or of `user`) that are shared with you, the last shared first.
        """
        params: dict[str, Any] = {"status": sorted(status.value for status in statuses)}
        if user is not None:
            params["user"] = user
        if shared:
            params["shared"] = True
        return self._items(Page[Job], "/v1/jobs", params)

    def elements(self, array_id: str, statuses: Iterable[JobStatus] = ()) -> Iterator[Job]:
        """The elements of an array, in the order of their indexes."""
        params = {"status": sorted(status.value for status in statuses)}
        return self._items(Page[Job], f"{_job_path(array_id)}/elements", params)

    def cancel(self, job_id: str, *, if_match: str | None = None) -> Job:
        """End a running job, or remove a waiting one from the queue."""
        return self._post(Job, f"{_job_path(job_id)}/cancel", if_match=if_match)

    def extend(self, job_id: str, by: timedelta, *, if_match: str | None = None) -> Job:
        return self._post(Job, f"{_job_path(job_id)}/extend", JobExtend(by=by), if_match=if_match)

    def keep(self, job_id: str) -> Job:
        """Take back the warning that the GPUs of a job are idle."""
        return self._post(Job, f"{_job_path(job_id)}/keep")

    def share(self, job_id: str, user: str) -> Job:
        """Let a user enter a job and look at it."""
        return self._change("PUT", Job, f"{_job_path(job_id)}/shares/{quote(user, safe='')}")

    def unshare(self, job_id: str, user: str) -> Job:
        """End a share of a job."""
        return self._change("DELETE", Job, f"{_job_path(job_id)}/shares/{quote(user, safe='')}")

    def log(self, job_id: str, *, timestamps: bool = False, attempt: int | None = None) -> Iterator[bytes]:
        """The output so far of an attempt, by default the newest; `timestamps` begins lines with their time."""
        return read_log(self._exchange, _job_path(job_id), timestamps=timestamps, attempt=attempt)

    def follow_log(self, job_id: str, log: ResumableLog, *, timestamps: bool = False) -> Iterator[bytes]:
        """The job's output after what `log` has passed on, until the job has ended."""
        return follow_log(self._exchange, _job_path(job_id), lambda: self.job(job_id), log, timestamps=timestamps)

    def events(self, job_id: str, *, after: int = 0) -> Iterator[JobEvent]:
        """The job's events so far, after the event `after`."""
        return read_events(self._exchange, _job_path(job_id), after, QUIET_S)

    def follow_events(self, job_id: str, *, after: int = 0) -> Iterator[JobEvent]:
        """The job's events after the event `after`, until its last."""
        return follow_events(self._exchange, _job_path(job_id), lambda: self.job(job_id), after)

    # inventory and queue

    def gpus(self) -> Iterator[GpuOut]:
        """Every GPU, by node and index."""
        return self._items(Page[GpuOut], "/v1/gpus")

    def nodes(self) -> Iterator[NodeOut]:
        """Every node, by name."""
        return self._items(Page[NodeOut], "/v1/nodes")

    def queue(self, limit: int = PAGE) -> QueuePage:
        """The first `limit` waiting jobs, by priority and arrival, with totals over all users' jobs."""
        first: QueuePage | None = None
        cursor: str | None = None
        while True:
            params: dict[str, Any] = {"limit": min(PAGE, limit - (len(first.items) if first else 0))}
            if cursor is not None:
                params["cursor"] = cursor
            page = read_answer(QueuePage, self._exchange.send("GET", "/v1/queue", params=params).content)
            if first is None:
                first = page
            else:
                first.items.extend(page.items)
            cursor = first.next_cursor = page.next_cursor
            if cursor is None or len(first.items) >= limit:
                return first

    # people

    def me(self) -> UserOut:
        """The user of this token."""
        return read_answer(UserOut, self._exchange.send("GET", "/v1/users/me").content)

    def user(self, name: str) -> UserOut:
        """A user by name: yourself, for administrators anybody."""
        return read_answer(UserOut, self._exchange.send("GET", f"/v1/users/{quote(name, safe='')}").content)

    def users(self) -> Iterator[UserOut]:
        """Every user (administrators only)."""
        return self._items(Page[UserOut], "/v1/users")

    def create_user(self, request: UserCreate) -> UserOut:
        """Add a user (administrators only)."""
        return self._post(UserOut, "/v1/users", request)

    def disable_user(self, name: str, *, end: bool = False) -> UserDisabled:
        """Disable a user (administrators only); with `end`, end all jobs and bookings, else only waiting ones."""
        params = {"end": "true"} if end else None
        answer = self._exchange.send("DELETE", f"/v1/users/{quote(name, safe='')}", params=params)
        return read_answer(UserDisabled, answer.content)

    def enable_user(self, name: str) -> UserOut:
        """Enable a disabled user (administrators only)."""
        return read_answer(UserOut, self._exchange.send("POST", f"/v1/users/{quote(name, safe='')}/enable").content)

    def tokens(self) -> "Iterator[TokenOut]":
        """Your tokens; for administrators all tokens."""
        from gpu_dev.wire.people import TokenOut

        return self._items(Page[TokenOut], "/v1/tokens")

    def create_token(self, request: "TokenCreate") -> "TokenCreated":
        """Make a token; its secret is in this answer and nowhere else."""
        from gpu_dev.wire.people import TokenCreated

        return self._post(TokenCreated, "/v1/tokens", request)

    def revoke_token(self, token_id: str) -> "TokenOut":
        """Revoke a token and all tokens that were made with it."""
        from gpu_dev.wire.people import TokenOut

        return read_answer(TokenOut, self._exchange.send("DELETE", f"/v1/tokens/{quote(token_id, safe='')}").content)

    def renew_token(self, secret: str) -> "TokenOut":
        """Replace the secret of the token in use."""
        from gpu_dev.wire.people import TokenOut, TokenRenew

        return self._post(TokenOut, "/v1/tokens/renew", TokenRenew(token=secret))

    def revoke_tokens(self, user: str | None = None) -> "TokensRevoked":
        """Revoke all your tokens but the one in use, or (administrators only) all tokens of a user."""
        from gpu_dev.wire.people import TokensRevoked

        params = None if user is None else {"user": user}
        return read_answer(TokensRevoked, self._exchange.send("DELETE", "/v1/tokens", params=params).content)

    # operators

    def fence_node(self, name: str, reason: str | None = None) -> NodeOut:
        """Fence a node that is without power: its jobs end (administrators only)."""
        return self._post(NodeOut, f"{_node_path(name)}/fence", NodeFence(reason=reason))

    def unfence_node(self, name: str) -> NodeOut:
        """Unfence a node (administrators only)."""
        return self._post(NodeOut, f"{_node_path(name)}/unfence")

    def cordon_node(self, name: str, reason: str | None = None) -> NodeOut:
        """Cordon a node: nothing new is placed there, and its jobs go on (administrators only)."""
        return self._post(NodeOut, f"{_node_path(name)}/cordon", NodeCordon(reason=reason))

    def quarantine_gpu(self, node: str, index: int, reason: str | None = None) -> NodeOut:
        """Quarantine a GPU: no new job or booking gets it (administrators only)."""
        return self._post(NodeOut, f"{_node_path(node)}/gpus/{index}/quarantine", GpuQuarantine(reason=reason))

    def release_gpu(self, node: str, index: int) -> NodeOut:
        """End the quarantine of a GPU (administrators only)."""
        return self._post(NodeOut, f"{_node_path(node)}/gpus/{index}/release")

    def uncordon_node(self, name: str) -> NodeOut:
        """Uncordon a node (administrators only)."""
        return self._post(NodeOut, f"{_node_path(name)}/uncordon")

    def unknown_pods(self) -> Iterator[UnknownPodOut]:
        """Pods that the ledger does not know, by name (administrators only)."""
        return self._items(Page[UnknownPodOut], "/v1/pods/unknown")

    def end_unknown_pod(self, name: str) -> UnknownPodOut:
        """End an unknown pod (administrators only)."""
        return self._post(UnknownPodOut, f"/v1/pods/unknown/{quote(name, safe='')}/end")

    def dead_letters(self, queue: str, limit: int = PAGE) -> list[DeadLetterOut]:
        """The oldest dead letters of a queue (administrators only)."""
        params = {"queue": queue, "limit": limit}
        answer = self._exchange.send("GET", "/v1/dead-letters", params=params)
        return read_answer(Page[DeadLetterOut], answer.content).items

    def redrive(self, queue: str, ids: list[int] | None) -> Redriven:
        """Send dead letters to their queue again, all if `ids` is None (administrators only)."""
        return self._post(Redriven, f"/v1/dead-letters/{quote(queue, safe='')}/redrive", Redrive(ids=ids))


def _job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _node_path(name: str) -> str:
    return f"/v1/nodes/{quote(name, safe='')}"
