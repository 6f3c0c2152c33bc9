"""Guards of preemptible jobs: nothing is late for them, they keep what they were told, and they wait again."""

from tests.mutants.mutant import Mutant

LIFE = "tests/unit/reservation_core/domain/jobs/test_preemption.py"
HISTORIES = "tests/unit/reservation_core/domain/planning/test_preemptible_jobs.py"
LEDGER = "tests/integration/reservation_core/usecases/running/test_preemption.py"
ARRAYS = "tests/integration/reservation_core/usecases/jobs/test_arrays.py"
RULES = "reservation_core/domain/jobs/preemption.py"
LEASES = "reservation_core/adapters/postgres/jobs/leases.sql"

PREEMPTION = (
    Mutant(
        "a preemptible job loses its least time",
        "A preemptible job keeps its GPUs for the time that it named",
        RULES,
        "    if not terms.preemptible or now < started_at + terms.min_runtime:\n",
        "    if not terms.preemptible:\n",
        (f"{LIFE}::test_it_is_not_asked_before_its_least_time_and_never_without_terms",),
    ),
    Mutant(
        "a job ends before its signal's time is over",
        "A job that got its signal has the time that it named until its end",
        RULES,
        "        is_over = terms.signalled_at is None or now >= terms.signalled_at + terms.lead\n",
        "        is_over = True\n",
        (f"{LIFE}::test_it_has_the_lead_of_its_signal_until_its_pods_end",),
    ),
    Mutant(
        "other jobs give their GPUs back",
        "Only preemptible jobs are asked for their GPUs",
        RULES,
        "    if not terms.preemptible or now < started_at + terms.min_runtime:\n",
        "    if now < started_at + terms.min_runtime:\n",
        (f"{LIFE}::test_it_is_not_asked_before_its_least_time_and_never_without_terms",),
    ),
    Mutant(
        "a preempted job ends with its exit code",
        "A job that was asked for its GPUs waits again, whatever its exit code is",
        "reservation_core/domain/jobs/lifecycle.py",
        "    if not ended_by_itself(reservation, event):",
        "    if False:",
        (f"{LIFE}::test_after_it_was_asked_it_waits_again_whatever_its_exit_code",),
    ),
    Mutant(
        "a range has its whole time",
        "The range of a preemptible job is what it keeps for sure",
        "reservation_core/domain/jobs/lifecycle.py",
        "        range_end = lease_end(reservation, started_at, event.turnaround)\n",
        "        pass\n",
        (f"{LIFE}::test_its_range_is_what_it_keeps_for_sure",),
    ),
    Mutant(
        "a preemptible job is promised a start",
        "No preemptible job gets a slot in the calendar",
        "reservation_core/domain/planning/slot_decisions.py",
        "        if not (queue.slotted or queue.preemptible) and reach",
        "        if not queue.slotted and reach",
        (f"{HISTORIES}::test_a_preemptible_job_goes_after_all_others_and_gets_no_slot",),
    ),
    Mutant(
        "a preemptible job has its place by age",
        "Preemptible jobs start after all others",
        "reservation_core/domain/planning/waiting_queue.py",
        "_LAST - job.priority if job.preemptible else -job.priority",
        "-job.priority",
        (f"{HISTORIES}::test_a_preemptible_job_goes_after_all_others_and_gets_no_slot",),
    ),
    Mutant(
        "a preemptible job goes before those in the database",
        "A preemptible job starts once all jobs of its type are in memory",
        "reservation_core/domain/planning/waiting_queue.py",
        "            return not {gpu_type, job.gpu_type} & self.ends.keys()\n",
        "            return True\n",
        (f"{HISTORIES}::test_it_does_not_start_while_others_may_be_outside_memory",),
    ),
    Mutant(
        "the first fit takes whose GPUs it likes",
        "Of the jobs that can make room those with the least loss do",
        "reservation_core/domain/planning/slot_decisions.py",
        "        if best is not None and self._picture.ledger.preemptible:",
        "        if False:",
        (f"{LEDGER}::test_of_two_the_one_that_loses_least_makes_room",),
    ),
    Mutant(
        "only the GPUs of preemptible jobs are needed",
        "A preemptible job makes room for the CPUs and memory of others",
        LEASES,
        "(r.id = ANY(CAST(:lacking AS text[])) OR EXISTS (",
        "(EXISTS (",
        (f"{LEDGER}::test_a_job_that_has_most_cpus_of_a_node_makes_room_for_one_on_another_gpu",),
    ),
    Mutant(
        "a range that is refused refuses all",
        "A range that can't be renewed keeps no other from that",
        "reservation_core/adapters/postgres/jobs/leases.py",
        "        return sum([await self._lengthen({job_id: until}) for job_id, until in untils.items()])",
        "        return 0",
        (f"{LEDGER}::test_a_range_that_can_not_be_renewed_keeps_no_other_from_that",),
    ),
    Mutant(
        "preemptible jobs fill quotas",
        "Preemptible jobs count for no quota",
        "reservation_core/adapters/postgres/policy/policies.sql",
        "WHERE r.kind IN ('job', 'booking') AND r.preemptible IS NOT TRUE;",
        "WHERE r.kind IN ('job', 'booking');",
        (f"{LEDGER}::test_it_counts_for_no_quota",),
    ),
    Mutant(
        "a waiting job may be asked for GPUs in the table",
        "The table of reservations refuses a waiting job that is asked for GPUs",
        "migrations/versions/005x/0050_preemption.sql",
        "CHECK (status <> 'queued' OR (preempted_at IS NULL AND signalled_at IS NULL)) NOT VALID",
        "CHECK (status IS NOT NULL) NOT VALID",
        (f"{LEDGER}::test_the_database_keeps_the_terms",),
    ),
    Mutant(
        "a booking that begins now leaves preemptible jobs their ranges",
        "A booking that begins now takes the GPUs of preemptible jobs",
        RULES,
        "    return replace(after, range_end=booked_at), (SetRangeEnd(booked_at), WakePlanner(), *effects)\n",
        "    return after, effects\n",
        (f"{LEDGER}::test_a_booking_that_begins_now_takes_the_gpus_of_those_that_lose_least",),
    ),
    Mutant(
        "a booking takes the GPUs of any preemptible job",
        "A booking that begins now takes the GPUs of the jobs that lose the least",
        "reservation_core/usecases/bookings/take_lent_gpus.py",
        "                if gpu.gpu_id not in holders or holders[gpu.gpu_id] in choice.victims\n",
        "",
        ("tests/unit/reservation_core/usecases/bookings/test_take_lent_gpus.py",),
    ),
    Mutant(
        "without promises nobody is made room for",
        "Preemptible jobs make room for the first in the queue also without promises",
        "reservation_core/domain/planning/slot_decisions.py",
        "        promises = max(promises, 1)\n",
        "        pass\n",
        (f"{LEDGER}::test_without_promises_the_first_in_the_queue_is_made_room_for",),
    ),
    Mutant(
        "an idle job keeps its place in the queue",
        "A job that left its GPUs idle goes to the end of the queue",
        "reservation_core/domain/jobs/lifecycle.py",
        "(MoveToEnd(),) if reservation.reason.code is ReasonCode.IDLE else ()",
        "()",
        ("tests/unit/reservation_core/domain/jobs/test_idle_jobs.py::test_it_goes_to_the_end_of_the_queue",),
    ),
    Mutant(
        "an array whose step fails holds up others",
        "An array whose step fails rests, and the others go on",
        "reservation_core/usecases/jobs/arrays.py",
        "            errors.append(error)\n",
        "            raise\n",
        (f"{ARRAYS}::test_a_bad_array_lets_others_of_the_same_look_go_on_and_rests_longer_each_time",),
    ),
)
