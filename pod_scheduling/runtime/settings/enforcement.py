"""How the webhook enforces bookings: its part of the webhook's settings."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from pod_scheduling.domain.enforcement.booking_rulings import Place, Silence, Unbooked
from reservation_core.runtime.settings.gpus import Names
from reservation_core.runtime.settings.section import Seconds, Section


class BookingEnforcement(Section):
    """What becomes of pods in namespaces where bookings are enforced, and who is asked. Times are in seconds."""

    # Whether POST /enforce is answered, for the namespaces that the API server's webhook configuration chooses.
    enforce_bookings: bool = False
    # A pod whose owner has no booking: deny; preemptible: it may be evicted for bookings; without_gpus: it gets no
    # GPUs.
    unbooked: Unbooked = Unbooked.DENY
    # Pods while the API does not answer: last_known, by its last answer; fail_closed, refused; fail_open, let in.
    silence: Silence = Silence.LAST_KNOWN
    # Where a pod on a booking runs: booked_nodes, on nodes where the booking has room for it, or anywhere. If the API
    # names no nodes, anywhere.
    place: Place = Place.BOOKED_NODES
    # The whole address of the schedulability call: …/v1/schedulability of this system, or …/gpu-schedulability/ of an
    # older one.
    api_url: Annotated[str, Field(min_length=8, max_length=2000)] | None = None
    # The form of the schedulability call: own (this system's) or seed (the older one's); auto: by the address's end.
    api_shape: Literal["auto", "own", "seed"] = "auto"
    api_token: SecretStr | None = None  # the token for the schedulability call; better in a file
    # A file with the token for the schedulability call, read at each call: write a new token into it to replace the old
    # one.
    api_token_file: Path | None = None
    api_ca_file: Path | None = None  # PEM: certificate authorities to trust in addition to the system's
    # Longest time of a schedulability call; no review waits so long
    api_timeout_s: Annotated[float, Field(gt=0, le=30)] = 2
    review_wait_s: Annotated[float, Field(ge=0, le=0.15)] = 0.15  # how long a review waits for the answer of the API
    fresh_s: Annotated[float, Field(ge=0.2, le=3600)] = 5  # how long an answer counts before the API is asked again
    # How long the last answer counts while the API is silent (last_known)
    last_known_s: Annotated[float, Field(ge=0, le=86_400 * 7)] = 600
    # YAML or TOML: the owners of pods, by users, prefixes and namespaces; read again when it changes
    owners_file: Path | None = None
    owners_look_s: Seconds = 1  # time between two looks for a changed owners file
    # Accounts that may change the annotations gpu-dev/… of pods, such as the service account of the expiry.
    mark_keepers: Names = ("system:serviceaccount:gpu-dev-system:reservation-expiry",)
    allow_claims: bool = False  # whether pods with resource claims are let in, which are not compared with bookings
    allow_shares: bool = False  # whether pods with shares of GPUs are let in, which are not compared with bookings
