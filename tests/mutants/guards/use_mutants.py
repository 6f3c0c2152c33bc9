"""Guards of samples of GPUs: what is not known is not zero, and no driver stops anything."""

from tests.mutants.mutant import Mutant

ANSWERS = "reservation_core/adapters/local/gpu_use/nvml_answers.py"
INSTANCES = "reservation_core/adapters/local/gpu_use/mig_instances.py"
XID_EVENTS = "reservation_core/adapters/local/gpu_use/xid_events.py"
CALLS = "reservation_core/adapters/local/gpu_use/bounded_calls.py"
STORE = "reservation_core/adapters/postgres/gpu_use/gpu_use.py"
STORING = "reservation_core/usecases/gpu_use/store_samples.py"

IDLENESS = "reservation_core/domain/gpu_use/idleness.py"
WATCHING = "reservation_core/usecases/gpu_use/watch_idle.py"
IDLE_JOBS = "reservation_core/domain/jobs/early_ends/idle_jobs.py"
EXTENDING = "reservation_core/usecases/jobs/extend.py"

GPU_ERRORS = "reservation_core/domain/gpu_use/gpu_errors.py"
GPU_SPEEDS = "reservation_core/domain/gpu_use/gpu_speeds.py"
HEALTH_SQL = "reservation_core/adapters/postgres/gpu_use/gpu_health.sql"
DIGESTS = "reservation_core/usecases/policy/send_digests.py"

OF_GPU_ERRORS = "tests/unit/reservation_core/domain/gpu_use/test_gpu_errors.py"
OF_GPU_SPEEDS = "tests/unit/reservation_core/domain/gpu_use/test_gpu_speeds.py"
OF_HEALTH = "tests/integration/reservation_core/usecases/gpu_use/test_watch_health.py"
OF_DIGESTS = "tests/integration/reservation_core/usecases/policy/test_send_digests.py"
OF_HISTORIES = "tests/unit/reservation_core/domain/gpu_use/test_idle_histories.py"
OF_IDLE_JOBS = "tests/unit/reservation_core/domain/jobs/test_idle_jobs.py"
OF_WATCH = "tests/integration/reservation_core/usecases/gpu_use/test_watch_idle.py"
OF_SAMPLER = "tests/unit/reservation_core/adapters/local/gpu_use/test_nvml_sampler.py"
OF_INSTANCES = "tests/unit/reservation_core/adapters/local/gpu_use/test_mig_instances.py"
OF_UNTAKEN = "tests/unit/reservation_core/domain/gpu_use/test_untaken_xids.py"
OF_AGENTS = "tests/integration/reservation_core/adapters/kubernetes/nodes/test_agent_samples.py"
OF_LISTED = "tests/integration/reservation_core/adapters/local/test_instances.py"
OF_STORE = "tests/integration/reservation_core/adapters/postgres/gpu_use/test_gpu_use.py"

USE_OF_GPUS = (
    Mutant(
        "samples of times that come again stay",
        "Where the clock went back, no sample is stored before those of times to come are removed",
        STORING,
        "rolled[Resolution.MINUTES] > await uow.now()",
        "False",
        (f"{OF_STORE}::test_a_clock_that_goes_back_leaves_no_samples_of_times_that_come_again",),
    ),
    Mutant(
        "samples of times that come again release",
        "Where the clock went back, no idle job is judged by samples of times to come",
        WATCHING,
        "    if rolled[Resolution.MINUTES] > looks[0].now:\n        return []\n",
        "",
        (f"{OF_WATCH}::test_nothing_is_released_by_samples_of_times_that_come_again",),
    ),
    Mutant(
        "an agent speaks of other nodes' GPUs",
        "A node agent speaks of the GPUs of its own node alone",
        "reservation_core/adapters/postgres/gpu_use/gpu_use.sql",
        "n.name = coalesce(f.node, n.name)",
        "true",
        (f"{OF_STORE}::test_an_agent_speaks_of_no_other_nodes_gpus",),
    ),
    Mutant(
        "what the driver does not say is zero",
        "A value that the driver does not give is unknown, not zero",
        ANSWERS,
        "        if problem.value in _not_known(nvml):\n            return None\n",
        "        if problem.value in _not_known(nvml):\n            return 0  # type: ignore[return-value]\n",
        (f"{OF_SAMPLER}::test_values_that_the_driver_does_not_give_are_unknown",),
    ),
    Mutant(
        "counters that say nothing say idle",
        "The use of a MIG instance without counters is unknown, not zero",
        INSTANCES,
        "or metric.value < 0:\n            return None",
        "or metric.value < 0:\n            return 0.0",
        (f"{OF_INSTANCES}::test_what_is_no_number_is_no_use",),
    ),
    Mutant(
        "a MIG instance that fails takes the samples of others",
        "A MIG instance that does not answer takes no sample from others",
        INSTANCES,
        "                found[number] = problem\n",
        "                raise\n",
        (f"{OF_INSTANCES}::test_an_instance_that_fails_takes_no_sample_from_the_others",),
    ),
    Mutant(
        "an Xid error is lost with a look",
        "An Xid error that comes with a failed look is told by the next",
        XID_EVENTS,
        "        if self._events is None:\n",
        "        self._xids.clear()\n        if self._events is None:\n",
        (f"{OF_INSTANCES}::test_an_xid_that_comes_with_a_failed_look_is_told_by_the_next",),
    ),
    Mutant(
        "an Xid error is lost with an answer",
        "An Xid error whose answer is lost comes with the next",
        "reservation_core/domain/gpu_use/untaken_xids.py",
        "if found[0] > look]",
        "if found[0] == self._look]",
        (f"{OF_UNTAKEN}::test_an_error_is_repeated_until_its_answer_is_confirmed",),
    ),
    Mutant(
        "an Xid error of a silent GPU is told to two leaders",
        "A new leader gets no Xid error that the one before may have, also once its GPU answers again",
        "reservation_core/domain/gpu_use/untaken_xids.py",
        "(known or at == self._look)",
        "(known or not known)",
        (f"{OF_UNTAKEN}::test_another_leader_has_no_error_of_a_silent_gpu_that_the_one_before_may_have",),
    ),
    Mutant(
        "an Xid error of a silent GPU goes with the leader",
        "A new leader gets an Xid error that still waits for a sample of its GPU",
        "reservation_core/domain/gpu_use/untaken_xids.py",
        "(known or at == self._look)",
        "known",
        (f"{OF_UNTAKEN}::test_another_leader_has_an_error_that_waited_for_a_sample",),
    ),
    Mutant(
        "an agent's look knows no confirmation",
        "An Xid error whose answer is lost waits for a sample of its GPU",
        "reservation_core/runtime/pods/sample_server.py",
        "last.add(await sampler.look(clock.now()), after)",
        "last.add(await sampler.look(clock.now()))",
        (f"{OF_AGENTS}::test_an_xid_error_arrives_once",),
    ),
    Mutant(
        "a MIG instance that fails takes the others out of the list",
        "A MIG instance that does not answer is lost alone",
        "reservation_core/adapters/local/inventory.py",
        "            found[index] = problem\n",
        "            raise\n",
        (f"{OF_LISTED}::test_an_instance_that_does_not_answer_is_lost_alone",),
    ),
    Mutant(
        "a hanging driver gets another thread each time",
        "A GPU that hangs has one thread, and no other call until it returns",
        CALLS,
        "begun = [key for key in calls if key not in hanging]",
        "begun = [*calls]",
        (f"{OF_SAMPLER}::test_a_gpu_that_hangs_has_no_sample_and_costs_one_thread",),
    ),
    Mutant(
        "a sample that is not known is stored as zero",
        "A value that was not sampled is null in the database",
        STORE,
        "None if sample.utilisation is None else round(sample.utilisation * _THOUSANDTHS),",
        "round((sample.utilisation or 0) * _THOUSANDTHS),",
        (f"{OF_STORE}::test_what_was_not_sampled_is_not_zero",),
    ),
    Mutant(
        "late samples are in no roll-up",
        "A sample that comes after its minute was rolled up has it rolled up again",
        STORING,
        "        if back != rolled:\n            await uow.gpu_use.move(back)\n",
        "",
        (f"{OF_STORE}::test_a_late_sample_is_rolled_up_all_the_same",),
    ),
    Mutant(
        "no sample is no use",
        "The part of a window without samples counts as use",
        IDLENESS,
        "    return 1 - idle / ((window.end - begin) / window.step)\n",
        "    return 0.0 if not idle else 1 - idle / sum(begin <= point.at < window.end for point in points)\n",
        (f"{OF_HISTORIES}::test_no_job_is_released_wrongly",),
    ),
    Mutant(
        "one idle GPU is enough",
        "One busy GPU of a gang keeps all of it",
        IDLENESS,
        "        and all(\n",
        "        and any(\n",
        (f"{OF_HISTORIES}::test_no_job_is_released_wrongly",),
    ),
    Mutant(
        "stale samples show idle GPUs",
        "A GPU without a sample in the last step is in use",
        IDLENESS,
        "    return any(point.at < window.end for point in recent) and not any(",
        "    return not any(",
        (f"{OF_HISTORIES}::test_no_job_is_released_wrongly",),
    ),
    Mutant(
        "the time before a job counts as its idleness",
        "A job is idle after a whole window from its start, or from a keep, at the earliest",
        IDLENESS,
        "        and window.begin >= job.counts_from\n",
        "",
        (f"{OF_HISTORIES}::test_no_job_is_released_wrongly",),
    ),
    Mutant(
        "use after a warning does not matter",
        "Any use since the warning takes it back",
        IDLENESS,
        "    if any(_used_since(window.looks_back_to(warning), points, rule.below, window)",
        "    if not use and any(_used_since(window.looks_back_to(warning), points, rule.below, window)",
        (f"{OF_HISTORIES}::test_no_job_is_released_wrongly",),
    ),
    Mutant(
        "an idle job is ended before the time that its owner was told",
        "A warned job is ended after its grace time at the earliest",
        IDLENESS,
        "now < max(warning.release_at, warning.warned_at + rule.grace):",
        "now < warning.warned_at:",
        (f"{OF_HISTORIES}::test_no_job_is_released_wrongly",),
    ),
    Mutant(
        "a change between the look and the end is overrun",
        "A job that changed after it was judged idle is left alone",
        WATCHING,
        "                if row is None or row.version != job.version:\n",
        "                if row is None:\n",
        (f"{OF_WATCH}::test_a_change_between_the_look_and_the_end_is_not_overrun",),
    ),
    Mutant(
        "a job is kept without a warning",
        "Only a warned job is kept: nobody lifts the rule in advance",
        IDLE_JOBS,
        "    if reservation.status is not JobStatus.RUNNING or reservation.idle is None:\n        raise NotIdleError(",
        "    if reservation.status is not JobStatus.RUNNING:\n        raise NotIdleError(",
        (f"{OF_IDLE_JOBS}::test_without_a_warning_there_is_nothing_to_keep",),
    ),
    Mutant(
        "a job keeps itself",
        "The token of a job does not take back the warning that its GPUs are idle",
        EXTENDING,
        '    by_itself = principal.token_id == f"job:{job_id}"\n',
        "    by_itself = False\n",
        (f"{OF_WATCH}::test_a_job_does_not_keep_itself",),
    ),
    Mutant(
        "programs quarantine GPUs",
        "Xid errors that programs cause are no reason for a quarantine",
        GPU_ERRORS,
        "self.xid not in PROGRAM_XIDS)",
        "self.xid > 0)",
        (f"{OF_GPU_ERRORS}::test_random_errors_against_the_oracle",),
    ),
    Mutant(
        "a GPU without data throttles",
        "A GPU that was not busy in each part of an hour, or has no samples, is not judged",
        GPU_SPEEDS,
        "    known = [hour for hour in hours if hour.slices >= SLICES]\n",
        "    known = [*hours]\n",
        (f"{OF_GPU_SPEEDS}::test_no_data_is_no_verdict",),
    ),
    Mutant(
        "errors of another GPU count",
        "Errors count for the GPU that had them, not for its place",
        HEALTH_SQL,
        "JOIN gpus g ON g.id = e.gpu_id AND g.uuid = e.uuid\n",
        "JOIN gpus g ON g.id = e.gpu_id\n",
        (f"{OF_HEALTH}::test_another_gpu_at_the_place_does_not_answer_for_the_errors_before",),
    ),
    Mutant(
        "a release is forgotten",
        "Errors from before a release do not quarantine the GPU again",
        HEALTH_SQL,
        " AND e.at > coalesce(g.quarantine_over_at, '-infinity')\n",
        "\n",
        (f"{OF_HEALTH}::test_errors_that_repeat_quarantine_a_gpu_and_the_right_people_are_notified",),
    ),
    Mutant(
        "a week is sent by each leader",
        "The digest of a week is sent once",
        DIGESTS,
        "        if not await uow.usage.claim_digest(week, now):\n",
        "        if not await uow.usage.claim_digest(week, now) and not week:\n",
        (f"{OF_DIGESTS}::test_each_member_is_notified_once_also_with_two_leaders",),
    ),
)
