"""Every statement that runs on a timer, at a scrape or for a list, with values for each of its filters.

A statement of `reservation_core/adapters/postgres` is either in `repeated`, or in `BY_KEY`: it touches only rows
whose keys it is given, or none at all, so that no history makes it longer. The test of query plans and the benchmark
`history` take their statements from here; one that is in neither fails that test.
"""

from datetime import datetime, timedelta
from typing import Any

from benchmarks.long_history.lists import Values, what_people_list
from reservation_core.adapters.postgres.bookings.bookings import EVERY_STATUS
from reservation_core.domain.planning.run_times import OWN_ENDS

BY_KEY = frozenset(
    """
    take_reports_in_turn booked_slots admissions_of_pods end_admissions add_admissions record_admissions
    subject_is_of_user block_plans update_booking_reservations update_bookings drop_slots_beyond give_back_unbegun
    give_back_rest hold_booked_cards link_started_job lock_calendar add_series add_bookings lock_bookings
    project_of_booking booking_cards bookings_of_series jobs_within taken_within write_booking write_booking_times
    drop_plans_within move_booked_cards drop_booked_cards place_booked_cards cut_within close_booked_cards
    record_booking put_feed remove_feed feed_owner check_deferred_constraints database_time lease_is_held
    append_event claim_key answer_of_key store_answer principal_of_digest create_user user_by_name disable_user
    move_to_end settle_user unsettle_users create_token token_reach renew_token revoke_tokens enable_user
    forget_tokens revoke_token touch_tokens lock_inventory write_nodes
    write_gpus touch_nodes record_inventory_events lock_node fence_node unfence_node cordon_node uncordon_node
    nodes_without_power add_window add_to_window lock_window update_window close_window late_on_window
    cards_for_maintenance live_jobs_within drop_slots_for_maintenance lock_whose_notices add_notice_target
    notice_target lock_notice_target remove_notice_target verify_notice_target claim_notice_test notice_preferences
    count_preferences_up forget_notice_preferences add_notice_preferences notice_destination notice_occasion
    note_notice_delivered note_notice_failed acquire_lease renew_lease release_lease check_epoch commit_starts
    commit_slots record_late_starts take_turn_at_ending_pods booked_times booked_cards remember_pods forget_pods
    record_pod_endings try_pod_locks bound_lock_wait wait_for_pod_lock give_back_pod_locks kept_pod_logs
    keep_pod_logs pod_log_tail policy_revision lock_policy_rule put_policy_rule delete_policy_rules lock_policy_file
    keep_policy_file lock_quota_users lock_quota_projects names_of_users drop_slots_over_quota create_project
    project_by_name delete_project add_project_member remove_project_member projects_of_user read_messages
    delete_messages server_progress update_reservations unsettle_reservations settle_reservations forget_waiting
    move_range_ends in_the_way release_allocations avoid_nodes clear_slots_on take_cards record_reservation_events
    resend_pod_operations end_silent_sessions submit_reservations disabled_of bookings_named stored_answers
    report_unknown_pods forget_unknown_pods request_end_of_unknown_pod cards_for_unknown_pod lock_fair_shares
    forget_fair_shares use_proof user_id_of_name
    record_missed_starts add_budget hold_budgets settle_budgets charge_budgets view_budgets
    take_turn_at_chain event_writers append_to_chain chain_removals
    begin_retention lock_ended_reservations claim_usage keep_usage remove_allocations remove_allocations_of
    remove_promises_of unlink_started_jobs remove_pod_logs_of remove_admissions_of remove_windows_of remove_bookings_of
    remove_empty_series remove_reservations note_removed make_event_partitions drop_event_partition
    principal_of_token server_key add_server_key lock_user_of_keys ssh_key_by_fingerprint add_ssh_key remove_ssh_key
    lock_user_of_secrets replace_user_secret add_user_secret remove_user_secret user_secrets_named
    sealed_user_secrets reseal_user_secret
    lock_users_of_disks lock_room_for_disks lock_disks_named disk_totals_of
    add_disk disk_was_used disk_named disks_named change_disk end_uses_of_disks add_disk_uses
    add_snapshot add_disk_copy copies_of_disks end_disk_copy note_snapshot_made note_snapshot_failure
    note_snapshot_begun note_clone_begun note_clone_failure
    begin_snapshot_removal begin_removal_of_snapshots remove_snapshot
    begin_disk_removal note_disk_made note_disk_failure remove_disk note_disk_use
    owners_of_ssh_key touch_ssh_key lock_user_to_share_with add_job_share remove_job_share remove_job_shares_of_user
    job_share add_app_ticket use_app_ticket app_pass lock_connections_of_user open_connection refresh_connections
    close_connections connections_of_job
    gpus_of_uuids add_gpu_samples lock_gpu_use move_gpu_use gpus_of_job gpus_of_node gpu_use_rolled oldest_gpu_hour
    forget_gpu_use_to_come make_gpu_use_partitions drop_gpu_use_partition note_gpu_errors add_gpu_speeds gpu_by_place
    quarantine_gpu release_gpu note_slow_gpu note_gpu_not_slow note_job_of_quarantined_gpu forget_gpu_use_sums
    claim_digest hold_ledger_time ledger_time ledger_time_is_confirmed notice_routes set_notice_routes may_be_stored
    gpu_types_ever least_share_in_booking store_learnt_waits kept_by_nodes take_places clear_slots_of_places
    keep_needed_jobs needed_jobs add_dependencies dependencies_of take_news give_up_starts_after
    dependencies_among linked_jobs predicted_starts
    lock_user_of_files add_sent_chunks sent_bytes_of sent_chunk_sizes use_sent_chunks put_sent_folder use_sent_folder
    sent_folder sent_chunk_data put_job_results job_results_of remove_sent_folders
    take_array_news forget_array_news note_array open_elements make_elements renew_leases last_released
    """.split()  # noqa: SIM905 - names, one after the other
)


BY_THE_ROW = {
    "calendar_entries": "a week of the past has its bookings, and nothing without a history",
    "hold_bookings_of_pods": "one user had 250 bookings since yesterday, and none without a history",
    "quota_holdings": "one user had 1,900 bookings in the week that counts, and none without a history",
    "usage_report": "each step that something was in has its lines, and all but the last are empty without a history",
}
"""Reads of the past, and why a history makes them longer: times are compared for as many rows."""


_ORDER = {
    "by_area": True,
    "preemptible": False,
    "others": ["lab"],
    "standing_s": 7200.0,
    "alike_s": 28_800.0,
    "ageing_s": 172_800.0,
    "longest_s": 5_184_000.0,
    "beside_s": 150.0,
}


def repeated(now: datetime, gpus: int, newest: int) -> dict[str, list[Values]]:
    """Statements by name, each with the values that it is tried with: one set for each filter and each page.

    `now` is that of the history (see `benchmarks.long_history.history`), `gpus` how many the present has, `newest` the
    id of the newest event. Users 1 to 3 have rows, of the past half are of user 2.
    """
    return {
        **_planner(now),
        **_calendar(now, gpus),
        **_timers(now),
        **_retention(now),
        **_record(now, newest),
        **_gpu_use(now),
        **_sessions(now),
        **_scrapes(now, newest),
        **_quotas(now),
        **_simulations(now),
        **what_people_list(now),
    }


def _planner(now: datetime) -> dict[str, list[Values]]:
    return {
        "planning_gpus": [{}],
        "open_allocations": [{}],
        "nearest_open_allocations": [{"limit": 10_000}],
        "open_allocations_of": [{"ids": ["job-r00000001", "bkg-l00000001"]}],
        "planner_news": [{"limit": 1000}],
        "waiting_of": [{"ids": ["job-w00000001", "job-h000000004"]}],
        "waiting_windows": [{"limit": 100}],
        "waiting_apart": [{}],
        "waiting_dependants": [{"limit": 10_000}],
        "waiting_without_slot": [{"limit": 100}],
        "last_with_slot": [{"limit": 100}],
        "dependants_with_slot": [{"limit": 200}],
        "others_with_slot": [{"limit": 20_000}],
        "learnt_waits": [{}],
        "waiting_by_owner": [{"line_type": "h100", "without": "job-w00000001", "now": now, **_ORDER}],
        "open_allocations_beside": [{"id": "bkg-l00000001"}],
        "more_waiting": [{"line_type": "h100", "after_priority": -4, "after_seq": 0, "limit": 100}],
        "forget_messages": [{"epoch": 0, "limit": 1000}],
        "publish_estimates": [
            {"ids": ["job-w00000001"], "positions": [1], "reason_codes": ["waiting_for_gpus"], "reasons": ["It waits."],
             "estimated": [now], "p50s": [now], "p90s": [now], "now": now}
        ],
        "run_times": [
            {"since": since, "limit": 500, "reason_codes": sorted(OWN_ENDS)}
            for since in (None, now - timedelta(minutes=1))
        ],
        "node_links": [{}],
        "policy_rules": [{}],
    }  # fmt: skip


def _sessions(now: datetime) -> dict[str, list[Values]]:
    alive_since = now - timedelta(seconds=60)
    return {
        "jobs_to_enter": [{"reference": reference, "user_id": 2} for reference in ("job-r00000001", "train")],
        "forget_connections": [{"alive_since": alive_since}],
        "sessions_left_alone": [{"now": now, "alive_since": alive_since, "limit": 500}],
    }


def _calendar(now: datetime, gpus: int) -> dict[str, list[Values]]:
    day = timedelta(days=1)
    entries: dict[str, Any] = {
        "start": now, "end": now + 7 * day, "gpu_ids": list(range(1, min(gpus, 200) + 1)), "only_of": None,
        "limit": None, "merged_above": None, "places": [], "steps": [], "step_s": 0.0, "viewer": None, "named": 0,
    }  # fmt: skip
    merged = {
        **entries, "merged_above": 0, "places": [gpu // 8 for gpu in range(min(gpus, 200))],
        "steps": [now + number * day for number in range(7)], "step_s": 86_400.0, "viewer": 2, "named": 3,
    }  # fmt: skip
    due = {
        "now": now, "look_ahead": now + day, "starting_soon": [900.0, 86_400.0], "ending_soon": [900.0], "limit": 500,
    }  # fmt: skip
    window = {"only": None, "before_seq": None, "open_only": False, "limit": 50}
    return {
        "due_bookings": [due],
        "booking_facts": [{"ids": ["bkg-l00000000", "bkg-h000000005"]}],
        "left_over_jobs": [{"now": now, "limit": 500}],
        "waitlist_mark": [{}],
        "waitlist": [{"limit": 100}],
        "open_booking_counts": [{}],
        "somebody_waits": [{}],
        "bookable_cards": [
            {"start": now, "end": now + 7 * day, "without": without} for without in ([], ["job-w00000001"])
        ],
        "booking_views": [{"ids": ["bkg-l00000000", "bkg-h000000005"]}],
        "calendar_entries": [
            entries,
            {**entries, "limit": 400},
            {**entries, "only_of": 2},
            {**entries, "start": now - 7 * day, "end": now},
            merged,
            {**merged, "only_of": 2},
        ],
        "feed_bookings": [
            {
                "user_id": 2,
                "from": now - 30 * day,
                "longest_s": 90 * 86_400.0,
                "statuses": ["confirmed", "active", "ended"],
                "limit": 1000,
            }
        ],
        "hold_bookings_of_pods": [
            {"ids": ["bkg-l00000000"], "earliest": now - day, "now": now, "users": ["person-2", "person-3"]}
        ],
        "taken_by_others": [{"gpu_ids": [1, 2, 3, 4], "start": now, "end": now + day}],
        "joined_cards": [{"now": now}],
        "due_windows": [{"now": now}],
        "window_views": [window, {**window, "open_only": True}, {**window, "before_seq": 50_000}],
        "nodes_now": [{"within_s": 3600.0}],
        "needed_cards": [{"nodes": ["node-00001", "node-00002"], "lead": timedelta(minutes=10)}],
        "remembered_pods": [{}],
    }


def _timers(now: datetime) -> dict[str, list[Values]]:
    return {
        "user_secrets_of_former_keys": [
            {"keys": keys, "user_id": 0, "name": "", "limit": 100} for keys in ([], ["0" * 8])
        ],
        "disk_bytes_in_all": [{"but": but} for but in ("", "disk-none")],
        "end_disk_uses": [{"now": now, "limit": 50}],
        "disks_to_settle": [{"deleted_before": now - timedelta(days=30), "failed_before": now, "limit": 50}],
        "copies_to_make": [{"failed_before": now, "limit": 1}],
        "snapshots_to_remove": [{"failed_before": now, "limit": 50}],
        "disks_to_measure": [{"measured_before": now - timedelta(minutes=1), "limit": 50}],
        "jobs_with_news": [{"limit": 200}],
        "arrays_with_news": [{"leave_out": ["job-none"], "scanned": 2000, "limit": 100}],
        "any_terms_due": [{"now": now}],
        "end_signals_due": [{"now": now, "limit": 500}],
        "shares_needed": [{"now": now, "needs_s": 50.0}],
        "gpus_lent": [{"now": now, "longest_lead": timedelta(minutes=1)}],
        "gpus_needed": [{"now": now, "needs_s": 50.0, "lacking": [], "limit": 500}],
        "leases_due": [
            {"now": now, "needs_s": 50.0, "while_s": 20.0, "turnaround_s": 10.0, "lacking": [], "limit": 500}
        ],
        "due_reservations": [{"now": now, "limit": 100}],
        "next_end": [{}],
        "warnable_reservations": [{"now": now, "thresholds": [300, 900], "farthest_s": 900.0, "limit": 100}],
        "stuck_reservations": [{"starting_before": now, "ending_before": now, "limit": 100}],
        "live_reservations": [{}],
        "lock_reservations": [{"ids": ["job-r00000001", "job-h000000004"]}],
        "get_reservations": [{"ids": ["job-r00000001", "job-h000000004"]}],
        "reservation_allocations": [{"ids": ["job-r00000001", "job-h000000004"]}],
        "reservations_without_power": [{}],
        "known_nodes": [{}],
        "known_gpus": [{"now": now}],
        "unsettled_users": [{}],
        "update_shares": [
            {"as_of": now - timedelta(seconds=30), "now": now, "half_life_s": 604_800.0, "rate_s": 872_541.0,
             "age_s": 30.0}
        ],
        "fair_shares": [{}],
        "unknown_pods_of": [{"reservation_ids": ["job-r00000001"]}],
        "estimates_as_of": [{}],
    }  # fmt: skip


def _retention(now: datetime) -> dict[str, list[Values]]:
    return {
        "oldest_sent_folders": [{"before": now - timedelta(days=30), "limit": 100}],
        "remove_sent_chunks": [{"before": now - timedelta(days=30), "limit": 1000}],
        "still_needed": [{}],
        "removable_reservations": [
            {"before": now - timedelta(days=100), "after_at": now - timedelta(days=40_000), "after_id": "",
             "limit": 100}
        ],
        "removable_allocations": [{"before": now - timedelta(days=100), "after_id": 0, "limit": 100}],
        "oldest_ended_reservation": [{}],
        "oldest_open_reservation": [{}],
        "oldest_allocation": [{}],
        "oldest_event": [{}],
        "oldest_pod_log": [{}],
        "oldest_key": [{}],
        "event_partition_is_due": [{"before": now - timedelta(days=400)}],
        "remove_keys": [{"before": now - timedelta(days=1), "limit": 100}],
        "remove_pod_logs": [{"before": now - timedelta(days=7), "limit": 100}],
        "retention_standing": [{}],
        "sum_up_given_back": [{"before": now, "limit": 100}],
        "sum_up_refunds": [{"limit": 100}],
    }  # fmt: skip


def _record(now: datetime, newest: int) -> dict[str, list[Values]]:
    return {
        "chain_head": [{}],
        "chain_start": [{}],
        "events_ahead": [{"after": newest - 400, "limit": 500}],
        "events_between": [{"after": newest - 400, "through": newest, "limit": 500}],
        "oldest_unchained": [{"after": newest - 400}],
        "chain_links": [{"start": 0, "limit": 501}],
        "first_chained_since": [{"at": now - timedelta(days=30)}],
        "trim_chain": [{"limit": 1000}],
        "newest_event": [{}],
        "events_standing": [{}],
        "events_after": [{"after_id": newest - 100, "limit": 2000, "late": [1, 2]}],
    }  # fmt: skip


def _gpu_use(now: datetime) -> dict[str, list[Values]]:
    return {
        "roll_gpu_minutes": [{"start": now - timedelta(minutes=10), "until": now}],
        "roll_gpu_hours": [{"start": now - timedelta(hours=1), "until": now}],
        "oldest_gpu_sample": [{"since": now - timedelta(days=days)} for days in (3, 400)],
        "oldest_gpu_minute": [{"since": now - timedelta(days=days)} for days in (3, 400)],
        "sum_up_gpu_use": [{"start": now - timedelta(hours=2), "until": now - timedelta(hours=1)}],
        "used_gpus": [
            {"by": "project", "user_id": user, "start": now - timedelta(days=7), "until": now,
             "starts": [now - timedelta(minutes=30)], "untils": [now]}
            for user in (None, 2)
        ],
        "used_gpus_by_step": [
            {"by": "project", "user_id": user, "start": now - timedelta(30), "until": now, "step": timedelta(days=1)}
            for user in (None, 2)
        ],
        "gpu_errors_since": [{"since": now - timedelta(days=7)}],
        "gpu_speeds_of_hour": [{"start": now - timedelta(hours=1), "until": now}],
        "slow_gpus": [{}],
        "forget_gpu_errors": [{"before": now - timedelta(days=7)}],
        "forget_gpu_speeds": [{"before": now - timedelta(days=1)}],
        "watched_jobs": [{"warned": False}, {"warned": True}],
        "quiet_gpus": [
            {"gpu_ids": [1, 2], "sinces": 2 * [now - timedelta(minutes=1)], "leasts": 2 * [100.0], "now": now}
        ],
        "gpu_use_points": [
            {"gpu_ids": [1, 2], "resolutions": [10, 60], "starts": [now - timedelta(days=1)] * 2, "untils": [now] * 2,
             "step": timedelta(minutes=5)}
        ],
    }  # fmt: skip


def _simulations(now: datetime) -> dict[str, list[Values]]:
    return {
        "jobs_to_simulate": [
            {"user_id": user, "since": now - timedelta(days=days), "scanned": 1001}
            for user in (None, 2)
            for days in (1, 90)
        ],
        "bookings_to_simulate": [
            {
                "user_id": user,
                "since": now - timedelta(days=days),
                "longest": timedelta(days=90),
                "scanned": 801,
                "every_status": EVERY_STATUS,
            }
            for user in (None, 2)
            for days in (1, 90)
        ],
    }


def _scrapes(now: datetime, newest: int) -> dict[str, list[Values]]:
    return {
        "unended_job_counts": [{}],
        "newest_settled_event": [{"settled_before": now}],
        "ended_jobs": [{"after_event": newest - 100, "up_to_event": newest, "limit": 5000}],
        "calendar_events": [{"after_event": newest - 100, "up_to_event": newest}],
        "judged_predictions": [{"after_event": newest - 100, "up_to_event": newest, "slack_s": 2.0}],
        "gpu_counts": [{}],
        "gpu_use_now": [
            {"since": now - timedelta(minutes=1), "errors_since": now - timedelta(minutes=5), "after_node": "",
             "after_index": -1, "limit": 5000}
        ],
        "count_unknown_pods": [{}],
    }  # fmt: skip


def _quotas(now: datetime) -> dict[str, list[Values]]:
    week = now - timedelta(days=7)
    these: dict[str, Any] = {"user_ids": [2], "projects": ["project-2"]}
    return {
        "quota_holdings": [
            {"user_id": 2, "project": project, "known_from": week, "now": now} for project in (None, "project-2")
        ],
        "quota_open_of_all": [{"now": now, "promised": promised} for promised in (True, False)],
        "quota_open_of_these": [{**these, "now": now, "promised": True}],
        "open_reservations": [{}],
        "quota_held_now": [{}],
        "quota_spent_of_all": [{"since": week, "now": now}],
        "quota_spent_of_these": [{**these, "since": week, "now": now}],
        "quota_open_bookings": [{"user_id": 2, "project": project} for project in (None, "project-2")],
    }  # fmt: skip
