"""Statements for what people list, look up, search and sum up, with values for each filter and each page."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from reservation_core.adapters.postgres.bookings.bookings import EVERY_STATUS
from reservation_core.adapters.postgres.history.audit import LOOKED_AT, LOOKED_AT_OF_ONE
from reservation_core.adapters.postgres.jobs.job_views import SHARES_LOOKED_AT
from reservation_core.adapters.postgres.policy.usage import report_values
from reservation_core.adapters.postgres.search.search import BOOKINGS_OF_A_STATUS, ENDED_JOBS, OPEN_JOBS

Values = Mapping[str, Any]

_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_FINAL = ["succeeded", "failed", "cancelled", "expired"]
_LIVE = ["queued", "starting", "running", "ending"]


def what_people_list(now: datetime) -> dict[str, list[Values]]:
    """Statements by name; `now` is that of the history, as in `benchmarks.long_history.reads.repeated`."""
    bookings = {"list_bookings": _lists_of_bookings(now)}
    return {**bookings, **_jobs(), **_audit(now), **_lists(), **_searches(), **_usage(now)}


def _lists_of_bookings(now: datetime) -> list[Values]:
    day = timedelta(days=1)
    booked: dict[str, Any] = {
        "after_start": None, "after_id": None, "from": now, "to": None, "user_id": None, "only_own": False,
        "user": None, "statuses": None, "every_status": EVERY_STATUS, "limit": 100,
    }  # fmt: skip
    return [
        booked,
        {**booked, "to": now + 7 * day},
        {**booked, "from": now - 200 * day},
        {**booked, "from": now - 200 * day, "after_start": now - 199 * day, "after_id": ""},
        {**booked, "user_id": 2},
        {**booked, "user_id": 2, "only_own": True},
        {**booked, "user_id": 2, "only_own": True, "from": now - 365 * day},
        {**booked, "user": "person-3"},
        {**booked, "user": "person-3", "from": now - 365 * day},
        {**booked, "user": "nobody", "from": now - 365 * day},
        {**booked, "statuses": ["active"]},
        {**booked, "statuses": ["waiting"], "from": now - 365 * day},
        {**booked, "statuses": ["released"], "from": now - 365 * day},
        {**booked, "statuses": ["released"], "from": now - 365 * day, "user": "person-3"},
        {**booked, "statuses": ["released"], "from": now - 365 * day, "user": "person-2"},
        {**booked, "statuses": ["active", "released"], "user_id": 2, "only_own": True, "from": now - 365 * day},
    ]


def _jobs() -> dict[str, list[Values]]:
    last = 2**63 - 1
    each: list[list[str] | None] = [None, *([status] for status in _LIVE + _FINAL), _LIVE, ["queued", "failed"]]
    every = [{"before_seq": seq, "statuses": statuses, "limit": 101} for statuses in each for seq in (last, 50_000_000)]
    return {
        "view_reservation": [{"id": "job-h000000004", "user_id": user} for user in (None, 1, 2)],
        "jobs_around": [{"id": "job-h000000004", "user_id": user, "limit": 1002} for user in (None, 2)],
        "view_shared": [
            {"user_id": 3, "owner_id": owner, "statuses": statuses, "before_at": _END_OF_TIME,
             "before_id": "", "scanned": SHARES_LOOKED_AT, "limit": 101}
            for owner in (None, 2) for statuses in (None, ["running"], ["queued", "failed"])
        ],
        "view_reservations": [values | {"user_id": user} for user in (None, 2) for values in every],
        "view_elements": [
            {"array_id": "job-h000000004", "statuses": statuses, "after": -1, "before": 10_000, "limit": 101}
            for statuses in (None, ["failed"])
        ],
        "array_states": [{"ids": ["job-h000000004"]}],
        "view_next_elements": [{"array_ids": ["job-h000000004"]}],
        "view_waiting": [
            {"user_id": user, "after_priority": -9, "after_seq": 0, "limit": 50} for user in (None, 2)
        ],
        "places_behind_the_told": [
            {"ids": ["job-w00000300"], "types": ["h100"], "priorities": [0], "seqs": [last],
             "from_priorities": [-9], "from_seqs": [0], "slotted": [False]}
        ],
        "waiting_totals": [{}],
    }  # fmt: skip


def _audit(now: datetime) -> dict[str, list[Values]]:
    span: dict[str, Any] = {
        "from": None, "to": None, "before_at": None, "before_id": None, "kinds": None, "actor": None, "limit": 101,
    }  # fmt: skip
    looked, looked_of_one = {"scanned": LOOKED_AT}, {"scanned": LOOKED_AT_OF_ONE}
    half = now - timedelta(days=180)
    audits: list[Values] = [
        span,
        {**span, "to": half},
        {**span, "from": half, "to": half + timedelta(days=1)},
        {**span, "before_at": half, "before_id": 1000},
        {**span, "kinds": ["started"]},
        {**span, "kinds": ["token_created"]},
        {**span, "actor": "person-3"},
        {**span, "actor": "nobody"},
        {**span, "kinds": ["booking_cancelled"], "actor": "person-3", "to": half},
    ]
    of_one: list[Values] = [
        {**span, "subject": "job-h000000004"},
        {**span, "subject": "node-00001"},
        {**span, "subject": "node-00001", "kinds": ["node_changed"], "from": half},
        {**span, "subject": "node-00001", "kinds": ["node_cordoned"]},
        {**span, "subject": "node-00001", "actor": "person-3", "to": half},
    ]

    def from_the_oldest(values: Values) -> Values:
        """The same search in the other order."""
        kept = {key: value for key, value in values.items() if not key.startswith("before_")}
        return {**kept, "after_at": values["before_at"], "after_id": values["before_id"]}

    def without_filter(values: Values) -> Values:
        return {key: value for key, value in values.items() if key not in ("kinds", "actor", "limit")}

    return {
        "events_newest_first": [{**values, **looked} for values in audits],
        "oldest_event_looked_at": [without_filter(values) | looked for values in audits[:4]],
        "events_oldest_first": [from_the_oldest(values) | looked for values in audits],
        "newest_event_looked_at": [from_the_oldest(without_filter(values)) | looked for values in audits[:4]],
        "events_of_subject": [{**values, **looked_of_one} for values in of_one],
        "oldest_event_of_subject_looked_at": [without_filter(values) | looked_of_one for values in of_one],
        "events_of_subject_oldest_first": [from_the_oldest(values) | looked_of_one for values in of_one],
        "newest_event_of_subject_looked_at": [
            from_the_oldest(without_filter(values)) | looked_of_one for values in of_one
        ],
    }


def _lists() -> dict[str, list[Values]]:
    belongings = [{"user_id": 2, "limit": 100}]
    return {
        "events_of_reservation": [{"reservation_id": "job-h000000004", "after_id": 0, "limit": 100}],
        "waiting_of_user": belongings,
        "open_of_user": belongings,
        "left_of_user": belongings,
        "fellows_of_user": [{"user_id": 2}],
        "users_by_name": [{"after": "", "limit": 100}],
        "tokens_of_user": [{"user_id": 2, "after": "", "limit": 100}],
        "tokens_of_everybody": [{"after": "", "limit": 100}],
        "ssh_keys_of_user": [{"user_id": 2, "after": "", "limit": 100}],
        "user_secrets_of": [{"user_id": 2, "after": "", "limit": 100}],
        "disks_of": [{"user_id": 2, "deleted": False, "name": "", "id": "", "limit": 100}],
        "ssh_keys_of_everybody": [{"after": "", "limit": 100}],
        "notice_targets_of_user": [{"user_id": 2, "after": "", "limit": 100}],
        "notice_targets_of_everybody": [{"after": "", "limit": 100}],
        "projects_by_name": [{"after": "", "user_id": user, "limit": 100} for user in (None, 2)],
        "gpu_views": [{"after_node": "node-00002", "after_index": 3, "limit": 100, "within_s": 3600.0}],
        "node_views": [
            {"after": "", "only": None, "limit": 50, "within_s": 3600.0},
            {"after": "", "only": "node-00001", "limit": 1, "within_s": 3600.0},
        ],
        "unknown_pods_page": [{"after": "", "limit": 100}],
        "entitlements_of_user": [{"user_id": 2, "but_for": None}],
        "nodes_of_booking": [{"gpu_type": "h100", "booking_id": "bkg-l00000000", "but_for": None}],
        "free_of_types": [{"gpus": 1, "gpu_type": kind} for kind in (None, "h100")],
        "promised_cards": [{}],
    }


def _searches() -> dict[str, list[Values]]:
    jobs: dict[str, Any] = {"open": OPEN_JOBS, "last_seq": 2**63 - 1, "scanned": ENDED_JOBS}
    jobs |= {"shares": SHARES_LOOKED_AT, "limit": 8}
    bookings: dict[str, Any] = {"scanned": BOOKINGS_OF_A_STATUS, "limit": 8}
    asked = [
        {"text": text, "user_id": user} for text in ("h000000004", "train", "no such name") for user in (None, 2, 3)
    ]
    letters = {"capitals": "Ü", "smalls": "ü"}
    return {
        "find_jobs": [{**jobs, **letters, **values, "start": f"job-{values['text']}"} for values in asked],
        "find_bookings": [{**bookings, **letters, **values, "start": f"bkg-{values['text']}"} for values in asked],
        "find_nodes": [{**letters, "text": "node-00001", "limit": 8}],
        "find_users": [{**letters, "text": "person-3", "limit": 8}],
    }


def _usage(now: datetime) -> dict[str, list[Values]]:
    year = now - timedelta(days=365)
    day = timedelta(days=1)
    midnight = now.replace(hour=5, minute=0, second=0, microsecond=0)
    spans = [
        (year, now, now - year),
        (now - 7 * day, now, 7 * day),
        (midnight - 364 * day, now, 7 * day),
        (midnight - 90 * day, now, day),
        (midnight - timedelta(hours=47), now, timedelta(hours=1)),
    ]
    reports = [report_values(start, end, step) for start, end, step in spans]
    return {
        "usage_report": [
            {**report, "by": by, "user_id": user, "split": split}
            for report in reports
            for by, user, split in (
                ("user", None, False),
                ("project", None, False),
                ("gpu_type", None, False),
                ("user", 2, False),
                ("project", None, True),
            )
        ],
        "settled_usage": [{"before": now, "limit": 1000}],
        "sum_up_usage": [{"ids": []}],
    }
