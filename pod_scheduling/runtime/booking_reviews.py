"""What the webhook needs to enforce bookings: the service that is asked, what is known of it, and the owners file."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from pod_scheduling.domain.enforcement.booking_rulings import EnforcementRules
from pod_scheduling.domain.enforcement.pod_owners import OwnerRules
from pod_scheduling.domain.enforcement.remembered_standings import MemoryRules
from pod_scheduling.ports.standings import SourceSilentError
from pod_scheduling.runtime.reading.owners_file import OwnersFile
from pod_scheduling.runtime.settings.enforcement import BookingEnforcement
from pod_scheduling.runtime.settings.webhook import WebhookSettings
from pod_scheduling.usecases.enforcement.follow_standings import FollowedStandings, Outcome
from pod_scheduling.usecases.enforcement.review_booking import BookingReviewer, BookingReviewRules
from reservation_core.adapters.clock import SystemClock
from reservation_core.domain.cards.gpu_types import TypeNames
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.settings.error import SettingsError

_PREFIX = "GPU_DEV_WEBHOOK__"
_LARGEST_TOKEN = 1024
_log = structlog.get_logger(__name__)


class EnforcementCounters(Protocol):
    """Counters of what enforcement does."""

    def asked(self, outcome: Outcome, seconds: float) -> None:
        """A question was put to the schedulability service."""
        ...

    def owners_usable(self, usable: bool) -> None:
        """Whether the owners file, as it is now, is the one in use."""
        ...


@asynccontextmanager
async def open_booking_reviewer(
    settings: WebhookSettings, counters: EnforcementCounters, loops: Loops | None = None
) -> AsyncIterator[BookingReviewer]:
    """The reviewer, with what is asked ahead in the background. Raises SettingsError."""
    loops = Loops() if loops is None else loops
    # Loaded only where bookings are enforced.
    from pod_scheduling.adapters.schedulability.answers import QuestionShape  # noqa: PLC0415
    from pod_scheduling.adapters.schedulability.client import Service, open_schedulability  # noqa: PLC0415

    chosen = settings.webhook
    url, seed = _address(chosen)
    service = Service(
        url, QuestionShape.SEED if seed else QuestionShape.OWN, _token(chosen), _tls(chosen), chosen.api_timeout_s
    )
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        owners: Callable[[], OwnerRules] = OwnerRules
        if chosen.owners_file is not None:
            file = OwnersFile(chosen.owners_file, counters.owners_usable)
            file.load()
            owners = file.rules
            await stack.enter_async_context(
                beside(loops.keep("owners_file", partial(file.watch, chosen.owners_look_s)), name="owners file")
            )
        client = await stack.enter_async_context(open_schedulability(service))
        memory = MemoryRules(fresh_s=chosen.fresh_s, kept_s=max(chosen.last_known_s, chosen.fresh_s))
        standings = FollowedStandings(client, memory, clock, counters.asked)
        await stack.enter_async_context(beside(loops.keep("standings", standings.follow), name="standings"))
        _log.info("bookings_enforced", shape=service.shape.value, unbooked=chosen.unbooked, silence=chosen.silence)
        yield BookingReviewer(standings, owners, _rules(settings), clock)


def _rules(settings: WebhookSettings) -> BookingReviewRules:
    chosen = settings.webhook
    return BookingReviewRules(
        enforcement=EnforcementRules(
            chosen.unbooked, chosen.silence, settings.gpu.resource_names, chosen.mark_keepers, chosen.place
        ),
        type_labels=settings.gpu.type_labels,
        words=TypeNames(settings.gpu.types),
        map_scheduler=chosen.scheduler_name,
        allow_claims=chosen.allow_claims,
        shares=None if chosen.allow_shares else chosen.share_resource,
        limit_s=chosen.review_wait_s,
    )


def _address(chosen: BookingEnforcement) -> tuple[str, bool]:
    """The service's address, and whether it is asked as of old. Raises SettingsError."""
    if chosen.api_url is None:
        raise SettingsError(
            f"{_PREFIX}API_URL is not set, and bookings can't be enforced without anybody to ask. Set it to the whole"
            f" address, such as https://gpu-dev.example.org/v1/schedulability, or {_PREFIX}ENFORCE_BOOKINGS=false"
        )
    try:
        parts = urlsplit(chosen.api_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise SettingsError(
            f"{_PREFIX}API_URL must be an http or https address without a user, password, query or fragment"
        )
    path = parts.path.rstrip("/")
    match chosen.api_shape:
        case "own" | "seed":
            return chosen.api_url, chosen.api_shape == "seed"
        case _ if path.endswith("/gpu-schedulability"):
            return chosen.api_url, True
        case _ if path.endswith("/v1/schedulability"):
            return chosen.api_url, False
        case _:
            raise SettingsError(
                f"{_PREFIX}API_URL ends neither in /v1/schedulability nor in /gpu-schedulability/. Correct it, or say"
                f" with {_PREFIX}API_SHAPE=own or seed how it is asked"
            )


def _token(chosen: BookingEnforcement) -> Callable[[], str | None]:
    """What gives the token of the moment. Raises SettingsError where there can't be one."""
    given, path = chosen.api_token, chosen.api_token_file
    if (given is None) == (path is None):
        raise SettingsError(
            f"Set either {_PREFIX}API_TOKEN or {_PREFIX}API_TOKEN_FILE: the service wants to know who asks"
        )
    if path is None:
        token = None if given is None else given.get_secret_value()
        return lambda: token

    def read() -> str:
        return _read_token(path)

    try:
        read()
    except SourceSilentError as problem:
        raise SettingsError(f"{_PREFIX}API_TOKEN_FILE: {problem}") from problem
    return read


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_TOKEN).decode("ascii", "replace").strip()
    except OSError as problem:
        raise SourceSilentError(f"the token's file can't be read: {problem.strerror}") from problem


def _tls(chosen: BookingEnforcement) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if chosen.api_ca_file is not None:
        try:
            context.load_verify_locations(cafile=chosen.api_ca_file)
        except (OSError, ssl.SSLError) as problem:
            raise SettingsError(f"{_PREFIX}API_CA_FILE can't be used: {type(problem).__name__}") from problem
    return context
