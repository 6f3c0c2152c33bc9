"""How the webhook enforces bookings: its part of the webhook's settings."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from pod_scheduling.domain.enforcement.booking_rulings import Place, Silence, Unbooked
from reservation_core.runtime.settings.gpus import Names
from reservation_core.runtime.settings.section import Seconds, Section


class BookingEnforcement(Section):
    """What becomes of pods in namespaces where bookings are enforced, and who is asked. Times are in seconds."""

    # With it, `POST /enforce` is answered: for the namespaces that the API server's configuration chooses.
    enforce_bookings: bool = False
    unbooked: Unbooked = Unbooked.DENY
    silence: Silence = Silence.LAST_KNOWN
    # Where a pod on a booking runs: on the nodes of which the service says that they have the booking's cards, or
    # wherever the scheduler puts it. A service that says no nodes is content with any.
    place: Place = Place.BOOKED_NODES
    # The whole address: …/v1/schedulability of this system, or …/gpu-schedulability/ of one that is asked as of old.
    api_url: Annotated[str, Field(min_length=8, max_length=2000)] | None = None
    api_shape: Literal["auto", "own", "seed"] = "auto"
    api_token: SecretStr | None = None
    api_token_file: Path | None = None  # read at each question, so that a token can be changed
    api_ca_file: Path | None = None  # PEM: whom to trust beside the system's certificate authorities
    api_timeout_s: Annotated[float, Field(gt=0, le=30)] = 2  # for a question in all; no review waits so long
    review_wait_s: Annotated[float, Field(ge=0, le=0.15)] = 0.15  # how long a review waits for an answer
    fresh_s: Annotated[float, Field(ge=0.2, le=3600)] = 5
    last_known_s: Annotated[float, Field(ge=0, le=86_400 * 7)] = 600
    owners_file: Path | None = None  # YAML or TOML: users, prefixes, namespaces; read again when it changes
    owners_look_s: Seconds = 1
    # Requesters who may change what the webhook wrote on pods, such as the service account of what ends them.
    mark_keepers: Names = ("system:serviceaccount:gpu-dev-system:reservation-expiry",)
    allow_claims: bool = False  # pods with resource claims, which can't be compared with bookings
    allow_shares: bool = False  # pods that ask for shares of cards (SHARE_RESOURCE), which can't either
