"""Guards of operation: what a database may answer, which time counts, who ends jobs, what strangers may send."""

from tests.mutants.mutant import Mutant

DRIVER_ERRORS = "reservation_core/adapters/postgres/connection/driver_errors.py"
TESTS_OF_DRIVER_ERRORS = "tests/integration/reservation_core/adapters/postgres/connection/test_driver_errors.py"
BOUNDS = "tests/integration/reservation_core/runtime/http/test_http_bounds.py"
WAY = "tests/integration/reservation_processor/test_way_of_a_job.py"
SLOTS = "tests/unit/reservation_core/domain/network/test_connection_slots.py"
_ARRAYS = "tests/integration/reservation_core/usecases/jobs/test_arrays.py"
WAITS = "tests/integration/reservation_core/adapters/postgres/connection/test_bounded_connections.py"
USECASES = "tests/integration/reservation_core/usecases/"

OPERATION = (
    Mutant(
        "a read-only database never passes",
        "A read-only database is unavailable, and no mistake of a statement",
        DRIVER_ERRORS,
        '    "25006",  #',
        "    #",
        (f"{TESTS_OF_DRIVER_ERRORS}::test_a_read_only_database_will_pass",),
    ),
    Mutant(
        "a full disk never passes",
        "A full disk is unavailable, and no mistake of a statement",
        DRIVER_ERRORS,
        '    "53",  #',
        "    #",
        (f"{TESTS_OF_DRIVER_ERRORS}::test_what_passes_is_told_from_what_does_not",),
    ),
    Mutant(
        "a connection keeps a transaction that did not end",
        "A connection on which a transaction broke is closed, and not handed to the next",
        "reservation_core/adapters/postgres/connection/broken_transactions.py",
        "        return not driver.is_closed() and driver.is_in_transaction()",
        "        return False",
        (f"{TESTS_OF_DRIVER_ERRORS}::test_a_connection_on_which_a_transaction_stayed_is_not_handed_to_the_next",),
    ),
    Mutant(
        "an unforeseen error ends a loop",
        "A loop outlives any exception of a step",
        "reservation_core/runtime/loops/loops.py",
        "        except (Exception, asyncio.CancelledError) as error:",
        "        except _PASSES as error:",
        ("tests/unit/reservation_core/runtime/loops/test_loops.py",),
    ),
    Mutant(
        "a range that is over is written",
        "A start whose range would be over before it begins is planned again",
        "reservation_core/adapters/postgres/planning/planning.sql",
        "AND NOT (SELECT over FROM time) FOR SHARE",
        "FOR SHARE",
        (USECASES + "planning/test_slots.py::test_a_start_that_would_be_over_before_it_begins_is_planned_again",),
    ),
    Mutant(
        "ends wait for the expiry",
        "The leader ends what is due",
        "reservation_processor/leading.py",
        '            group.create_task(loops["ends"].repeat(lambda: end_on_time(runtime, settings)), name="ends"),\n',
        "",
        (f"{WAY}::test_a_processor_alone_ends_a_job_past_its_end",),
    ),
    Mutant(
        "a missed start is silent",
        "The transaction that ends the wait of a job records that its promise was missed",
        "reservation_core/adapters/postgres/jobs/reservations.py",
        "        await self._record_missed_starts(changes)\n",
        "",
        (USECASES + "planning/test_missed_starts.py",),
    ),
    Mutant(
        "heads of any size",
        "A request's head has a bound",
        "reservation_core/runtime/http/bounded_protocol.py",
        "        if self._unframed_bytes > self.bounds.limits.head_bytes:",
        "        if False:",
        (f"{BOUNDS}::test_a_large_head_is_431_however_it_is_cut", f"{BOUNDS}::test_endless_heads_take_no_memory"),
    ),
    Mutant(
        "wrong tokens at any pace",
        "Wrong tokens are slowed by address",
        "api_service/access/token_pace.py",
        "            wait = self._failures.take(source, self._now())\n",
        "            wait = 0.0\n",
        ("tests/integration/api_service/access/test_token_pace.py::test_wrong_tokens_are_429_after_a_few",),
    ),
    Mutant(
        "URLs of any length",
        "A request's URL has a bound",
        "reservation_core/runtime/http/bounded_protocol.py",
        "        if len(self.url) > limits.url_bytes:",
        "        if False:",
        (f"{BOUNDS}::test_a_long_url_is_414",),
    ),
    Mutant(
        "bodies at any pace",
        "A request's body has a bound in time and a least rate",
        "reservation_core/domain/network/http_limits.py",
        "        return elapsed_s >= self.body_s or received < (elapsed_s - self.body_grace_s) * self.body_bytes_per_s",
        "        return False",
        (
            f"{SLOTS}::test_bodies_are_late_by_time_or_by_rate",
            f"{BOUNDS}::test_a_body_that_comes_too_slowly_is_408",
        ),
    ),
    Mutant(
        "silent connections keep others out",
        "Where all connections are taken, those that say nothing make room for new ones",
        "reservation_core/domain/network/connection_slots.py",
        "            displaced = self._idlest(self._strangers, now) or self._idlest(self._known, now)",
        "            displaced = None",
        (f"{SLOTS}::test_the_oldest_stranger_goes_first_then_the_idlest",),
    ),
    Mutant(
        "connections take all descriptors",
        "Some descriptors stay free of connections, for the planner, the database and files",
        "reservation_core/domain/network/http_limits.py",
        "    return max(1, min(wanted, descriptors - max(reserved, descriptors // 4)))",
        "    return max(1, min(wanted, descriptors))",
        (f"{SLOTS}::test_descriptors_stay_free_for_the_rest_of_the_process",),
    ),
    Mutant(
        "what ends stays ended",
        "A component that has worked is started again whatever it fails with",
        "standalone/components.py",
        "            if tries == 1 and _can_not_start(error, clock() - begun):",
        "            if True:",
        ("tests/unit/standalone/test_components.py",),
    ),
    Mutant(
        "statements go on for ever",
        "The server bounds each statement",
        "reservation_core/adapters/postgres/connection/engine.py",
        "        milliseconds = round((statement_s + _SERVER_LATER_S) * 1000)",
        "        milliseconds = 0",
        (f"{WAITS}::test_the_server_bounds_each_statement_as_well",),
    ),
    Mutant(
        "logs of any size",
        "Of what a local job prints a bounded head and end are kept",
        "reservation_core/adapters/local/bounded_log.py",
        "        self._limit = max(limit, SMALLEST_LIMIT)\n",
        "        self._limit = 0\n",
        ("tests/unit/reservation_core/adapters/local/test_bounded_log.py",),
    ),
    Mutant(
        "retries without end",
        "A job is retried as often as it asked, and never more",
        "reservation_core/domain/jobs/retries.py",
        "        and has_retry_left(reservation)\n",
        "",
        ("tests/unit/reservation_core/domain/jobs/test_retries.py::test_any_ends_one_after_the_other",),
    ),
    Mutant(
        "a cancelled job runs again",
        "What its owner ends is not retried, also while its pods still go",
        "reservation_core/domain/jobs/lifecycle.py",
        "if reservation.outcome is JobStatus.QUEUED or is_retried(reservation):",
        "if reservation.outcome is JobStatus.QUEUED:",
        ("tests/unit/reservation_core/domain/jobs/test_retries.py::test_it_can_be_ended_while_its_pods_still_go",),
    ),
    Mutant(
        "a run that is retried is forgotten",
        "What a retried run held counts as used",
        "reservation_core/domain/jobs/lifecycle.py",
        "(ReleaseGpus(ran_from), WakePlanner()",
        "(ReleaseGpus(), WakePlanner()",
        (
            "tests/integration/reservation_core/usecases/running/test_retries.py::test_the_ledger_says_when_each_run_began",
        ),
    ),
    Mutant(
        "more retries than asked for in the table",
        "The table of reservations refuses more retries than were asked for",
        "migrations/versions/004x/0046_retries.sql",
        "CHECK (retried BETWEEN 0 AND coalesce(retry_max, 0)) NOT VALID",
        "CHECK (retried IS NOT NULL) NOT VALID",
        ("tests/integration/reservation_core/usecases/running/test_retries.py::test_the_database_keeps_the_terms",),
    ),
    Mutant(
        "more elements at once",
        "No more elements of an array are open than may run at once",
        "reservation_core/domain/jobs/arrays.py",
        "    room = min(state.parallel - (state.made - state.ended), MADE_AHEAD - state.waiting)\n",
        "    room = MADE_AHEAD - state.waiting\n",
        (f"{_ARRAYS}::test_no_more_elements_are_open_than_may_run_at_once",),
    ),
    Mutant(
        "elements counted twice",
        "What happens to an element is counted once",
        "reservation_core/adapters/postgres/jobs/arrays.sql",
        "    DELETE FROM array_news WHERE array_id = :id RETURNING status, exit_code\n",
        "    SELECT status, exit_code FROM array_news WHERE array_id = :id\n",
        (f"{_ARRAYS}::test_elements_run_and_are_counted_and_the_array_ends_with_the_last",),
    ),
    Mutant(
        "an array that is planned",
        "The row of an array is held until it is over",
        "migrations/versions/004x/0049_arrays.sql",
        "        OR finished_at IS NOT NULL OR (held IS TRUE AND status = 'queued')) NOT VALID;",
        "        OR finished_at IS NOT NULL OR status = 'queued') NOT VALID;",
        (f"{_ARRAYS}::test_the_array_itself_is_never_planned",),
    ),
)
