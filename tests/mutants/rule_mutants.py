"""The pure rules: life, calendar, slots, quotas, proofs."""

from tests.mutants.mutant import Mutant

CODE = "reservation_core/domain/"
DOMAIN = "tests/unit/reservation_core/domain/"
LIFE = DOMAIN + "test_lifecycle.py"
LOGIN = "tests/integration/api_service/test_login.py"
ORACLE = DOMAIN + "planning/test_planning_against_oracle.py"

RULES = (
    Mutant(
        "an end before its time",
        "A job ends at its end and not before",
        CODE + "lifecycle.py",
        "reservation.ends_at is None or now < reservation.ends_at:",
        "reservation.ends_at is None:",
        (LIFE + "::test_the_end_is_reached_at_its_moment_and_not_before",),
    ),
    Mutant(
        "GPUs while a pod may come",
        "Nothing is let go while a pod may still come to be",
        CODE + "lifecycle.py",
        "if reservation.unsettled_until is not None and now < reservation.unsettled_until:",
        "if False:",
        (LIFE,),
    ),
    Mutant(
        "what ran is run again",
        "What has run is not run again by itself",
        CODE + "lifecycle.py",
        "if reservation.outcome is JobStatus.QUEUED and reservation.started_at is not None:",
        "if False:",
        (LIFE + "::test_what_began_to_run_when_it_had_been_taken_back_is_not_run_again",),
    ),
    Mutant(
        "what is over is cancelled",
        "What is over stays as it ended",
        CODE + "lifecycle.py",
        "    if reservation.status in FINAL_STATUSES:\n        raise AlreadyFinalError(\n"
        '            f"{reservation.id} has already ended ({reservation.status.value}); there is nothing to cancel."',
        "    if False:\n        raise AlreadyFinalError(\n"
        '            f"{reservation.id} has already ended ({reservation.status.value}); there is nothing to cancel."',
        (LIFE + "::test_what_is_over_is_not_cancelled",),
    ),
    Mutant(
        "a job ends with its range",
        "A job ends early enough for its pods to be gone when its range is over",
        CODE + "lifecycle.py",
        "in_time = reservation.range_end - event.turnaround",
        "in_time = reservation.range_end",
        (LIFE,),
    ),
    Mutant(
        "starts without bound",
        "A start is tried a bounded number of times",
        CODE + "starts.py",
        "    if attempt < max_starts:",
        "    if True:",
        (
            DOMAIN
            + "test_lifecycle.py::test_a_start_is_tried_a_bounded_number_of_times_and_then_fails_with_its_last_cause",
        ),
    ),
    Mutant(
        "what ran is tried elsewhere",
        "Only what never ran is tried on other nodes",
        CODE + "starts.py",
        "        and status.started_at is None\n",
        "",
        (DOMAIN + "test_starts.py",),
    ),
    Mutant(
        "an overrun is free",
        "A GPU whose pod overruns is not free",
        CODE + "calendar.py",
        "end if end > now else now + OVERRUN, owner",
        "end, owner",
        (ORACLE, DOMAIN + "test_calendar.py"),
    ),
    Mutant(
        "a hole that fits exactly is not one",
        "A job fits into a hole of exactly its length",
        CODE + "calendar.py",
        "            if start - free_from >= length:\n                edges",
        "            if start - free_from > length:\n                edges",
        (ORACLE, DOMAIN + "test_calendar.py"),
    ),
    Mutant(
        "backfill over the head",
        "Backfill delays nobody who is first in the queue",
        CODE + "planning/start_planning.py",
        "this.at + length, self._shadow(pool, this.at), avoided)",
        "this.at + length, None, avoided)",
        (DOMAIN + "planning/test_planning_against_oracle.py::test_backfill_never_delays_the_head_of_the_line",),
    ),
    Mutant(
        "starts before those unknown",
        "Nobody starts before those who may come first and are not in memory",
        CODE + "planning/start_planning.py",
        "return pools if horizon is None or job.key <= horizon else []",
        "return pools",
        (DOMAIN + "planning/test_start_planning.py::test_nobody_starts_before_those_of_any_type_who_may_come_first",),
    ),
    Mutant(
        "a slot starts under a pod",
        "A slot starts only where no pod is left on its GPUs",
        CODE + "planning/start_planning.py",
        " or any(each.held_by_others(job.id) for each in calendars):",
        ":",
        (DOMAIN + "planning/test_slot_planning.py", DOMAIN + "test_promises.py"),
    ),
    Mutant(
        "a late start passes its quota",
        "A start that comes late lasts no longer than its slot where a quota forbids it",
        CODE + "planning/start_planning.py",
        "if end > slot_end and not self._within_quotas(job, pool, this.at, end - this.at):",
        "if False:",
        (DOMAIN + "test_promises.py::test_nor_does_any_quota_of_its_owner_or_project",),
    ),
    Mutant(
        "a slot moves later",
        "A slot is moved to an earlier time and never to a later",
        CODE + "planning/slot_planning.py",
        "fit = self._earliest(job, pool, length, at, before=start, instead=instead)",
        "fit = self._earliest(job, pool, length, at, instead=instead)",
        (DOMAIN + "planning/test_slot_planning.py",),
    ),
    Mutant(
        "slots beside quotas",
        "A slot is given at a time at which the owner's quotas allow it",
        CODE + "planning/slot_planning.py",
        "if quotas is None or job.booking_id is not None or not quotas.binds(asker):",
        "if True:",
        (DOMAIN + "test_promises.py",),
    ),
    Mutant(
        "a slot on a lost card",
        "A slot whose GPUs can't be had any more is given up",
        CODE + "planning/slot_planning.py",
        "if self._slot_pool(each) is None]",
        "if False]",
        (DOMAIN + "planning/test_slot_planning.py::test_a_slot_on_a_card_that_is_lost_is_given_up_for_the_next_best",),
    ),
    Mutant(
        "all are promised",
        "Only the first of the queue get slots",
        CODE + "planning/slot_planning.py",
        "            if number >= room and (last is None or entry[:3] > last):\n                return\n",
        "",
        (
            DOMAIN
            + "planning/test_slot_planning.py::test_only_the_first_of_the_line_get_slots_and_whoever_comes_before_them",
        ),
    ),
    Mutant(
        "a booking takes a promised turn",
        "What was given after a slot takes nothing from it",
        CODE + "quotas.py",
        "if reason is not None and self.in_slot(start):",
        "if False:",
        (DOMAIN + "test_quotas.py::test_what_was_given_after_a_slot_takes_nothing_from_it",),
    ),
    Mutant(
        "what was allowed does not count",
        "What was allowed counts for the next, in one plan",
        CODE + "quotas.py",
        "        if reason is None:\n            self._count(start, start.asker)\n",
        "",
        (DOMAIN + "test_quotas.py::test_what_was_allowed_counts_for_the_next",),
    ),
    Mutant(
        "a job outlasts its booking",
        "A job in a booking ends by the booking's end",
        CODE + "planning/booking_planning.py",
        "end=min(placed.end, self._end)",
        "end=placed.end",
        ("tests/integration/reservation_core/usecases/planning/test_slots.py", DOMAIN + "test_promises.py"),
    ),
    Mutant(
        "estimates forget those before",
        "What a job is told first is when it starts",
        CODE + "pools/forecast.py",
        "chosen, start = slot[0], max(slot[1], now)",
        "chosen, start = slot[0], now",
        (DOMAIN + "planning/test_estimates.py",),
    ),
    Mutant(
        "a hopeless node again",
        "A job that could not start on a node goes to another",
        CODE + "pools/reach.py",
        "        if elsewhere:\n            return",
        "        if False:\n            return",
        (
            DOMAIN
            + "planning/test_start_planning.py::test_who_could_not_start_on_a_node_goes_to_another_and_waits_for_it",
        ),
    ),
    Mutant(
        "any host is asked",
        "What AWS is to check goes to listed hosts alone",
        CODE + "aws_signed_requests.py",
        " or parts.netloc not in rules.hosts or",
        " or",
        (LOGIN + "::test_what_is_forged_goes_nowhere",),
    ),
    Mutant(
        "a proof for another server",
        "A proof names this server in a signed header",
        CODE + "aws_signed_requests.py",
        "if sent.get(SERVER_ID_HEADER) not in rules.server_ids:",
        "if False:",
        (LOGIN + "::test_what_is_forged_goes_nowhere",),
    ),
    Mutant(
        "an old proof",
        "A proof is good for minutes",
        CODE + "aws_signed_requests.py",
        "if not call.signed_at - EARLY <= now <= call.signed_at + rules.max_age:",
        "if False:",
        (DOMAIN + "test_aws_signed_requests.py::test_it_has_its_time",),
    ),
    Mutant(
        "an ID token for others",
        "ID tokens are for our audience",
        CODE + "id_tokens.py",
        "if not issuer.audiences & set(audiences):",
        "if False:",
        ("tests/integration/api_service/test_login_id_tokens.py",),
    ),
    Mutant(
        "a server id that is not signed",
        "The header that names this server is signed",
        CODE + "aws_signed_requests.py",
        "if missing := sorted(needed - set(names)):",
        "if missing := sorted(needed & set()):",
        (LOGIN + "::test_a_presigned_address_without_our_name_in_the_signature_goes_nowhere",),
    ),
)
