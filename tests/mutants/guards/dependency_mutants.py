"""Guards of jobs that wait for other jobs: none starts before, none is forgotten, none waits in a circle."""

from tests.mutants.mutant import Mutant

PLANNING_SQL = "reservation_core/adapters/postgres/planning/planning.sql"
STORE_SQL = "reservation_core/adapters/postgres/jobs/dependencies.sql"
RETENTION_SQL = "reservation_core/adapters/postgres/history/retention.sql"
MIGRATION = "migrations/versions/004x/0045_dependencies.sql"
RULES = "reservation_core/domain/jobs/dependencies.py"
USE_CASE = "reservation_core/usecases/jobs/dependencies.py"

OF_RULES = "tests/unit/reservation_core/domain/jobs/test_dependencies.py"
OF_JOBS = "tests/integration/reservation_core/usecases/jobs/test_dependencies.py"
CHAINS = "reservation_core/domain/planning/chains/chain_slots.py"
LINKS = "reservation_core/domain/planning/chains/chain_links.py"
OF_PREDICTIONS = "tests/unit/reservation_core/domain/planning/predictions/test_chained_starts.py"
OF_CHAINS = "tests/unit/reservation_core/domain/planning/chains/test_chain_slots.py"
IN_THE_LEDGER = "tests/integration/reservation_core/usecases/planning/chains/test_chain_slots.py"
OF_REST = "tests/integration/api_service/jobs/asks/test_dependencies.py"

DEPENDENCIES = (
    Mutant(
        "the planner reads held jobs",
        "The planner's queue has no job that waits for others",
        PLANNING_SQL,
        "    WHERE r.status = 'queued' AND r.booking_id IS NULL AND r.held IS NOT TRUE AND r.kind = 'job'",
        "    WHERE r.status = 'queued' AND r.booking_id IS NULL AND r.kind = 'job'",
        (f"{OF_JOBS}::test_the_planners_queue_has_no_held_job",),
    ),
    Mutant(
        "held jobs start by an older picture",
        "The statement that starts jobs leaves held rows out",
        PLANNING_SQL,
        "r.status = :before AND r.held IS NOT TRUE AND",
        "r.status = :before AND",
        (f"{OF_JOBS}::test_a_plan_from_before_gives_a_held_job_nothing",),
    ),
    Mutant(
        "held jobs get slots by an older picture",
        "The statement that gives slots leaves out held rows that the plan took for others",
        PLANNING_SQL,
        "AND (r.held IS NOT TRUE OR (i.follows AND r.array_size IS NULL)))",
        "AND (r.held IS NOT TRUE OR r.array_size IS NULL))",
        (f"{OF_JOBS}::test_a_plan_from_before_gives_a_held_job_nothing",),
    ),
    Mutant(
        "the database starts held jobs",
        "A check constraint refuses a held row that starts",
        MIGRATION,
        "CHECK (held IS NOT TRUE OR status NOT IN ('starting', 'running', 'ending', 'succeeded')) NOT VALID",
        "CHECK (held IS NOT TRUE OR id <> '') NOT VALID",
        (f"{OF_JOBS}::test_the_database_starts_no_held_job",),
    ),
    Mutant(
        "jobs wait in a circle",
        "A job waits only for jobs that were stored before it",
        MIGRATION,
        "n.seq < j.seq AND",
        "n.seq <> -j.seq AND",
        (f"{OF_JOBS}::test_the_database_knows_no_circles",),
    ),
    Mutant(
        "a start is no news",
        "The transaction that starts a job marks the jobs that wait for that",
        MIGRATION,
        "OR (OLD.started_at IS NULL AND NEW.started_at IS NOT NULL)",
        "OR (OLD.started_at IS NULL AND NEW.started_at IS NOT NULL AND OLD.finished_at IS NOT NULL)",
        (f"{OF_JOBS}::test_a_job_may_wait_for_a_start",),
    ),
    Mutant(
        "an end is no news",
        "The transaction that ends a job marks the jobs that wait for that",
        MIGRATION,
        "((OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL)",
        "((OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL AND OLD.started_at IS NOT NULL AND false)",
        (
            f"{OF_JOBS}::test_a_job_is_planned_after_the_one_that_it_waits_for",
            f"{OF_JOBS}::test_an_end_waits_for_a_job_that_comes",
        ),
    ),
    Mutant(
        "marks that are there already are not written again",
        "An end locks the mark, so that a look that can't see the end leaves it",
        MIGRATION,
        "WHERE needs_id = NEW.id AND (",
        "WHERE needs_id = NEW.id AND NOT changed AND (",
        (f"{OF_JOBS}::test_an_end_that_is_not_committed_yet_is_not_missed",),
    ),
    Mutant(
        "a new job does not wait for ends that are written",
        "A new job shares the rows of the jobs that it names before it stores what it waits for",
        STORE_SQL,
        "ORDER BY id FOR SHARE;",
        "ORDER BY id;",
        (
            f"{OF_JOBS}::test_a_job_that_comes_while_the_other_ends_waits_for_that",
            f"{OF_JOBS}::test_an_end_waits_for_a_job_that_comes",
        ),
    ),
    Mutant(
        "history goes before its dependants know",
        "A job is not removed while its end is news for a job that waits for it",
        RETENTION_SQL,
        "WHERE d.needs_id = r.id AND d.changed)",
        "WHERE d.needs_id = r.id AND d.changed AND false)",
        (f"{OF_JOBS}::test_an_old_job_is_kept_until_its_end_is_known",),
    ),
    Mutant(
        "news are taken after the rest was read",
        "The news of a job are taken before what it waits for is read",
        USE_CASE,
        "        taken = await uow.dependencies.take_news(ids)\n        needed = await uow.dependencies.of(ids)\n",
        "        needed = await uow.dependencies.of(ids)\n        taken = await uow.dependencies.take_news(ids)\n",
        (f"{OF_JOBS}::test_an_end_between_the_two_reads_is_not_missed",),
    ),
    Mutant(
        "a failure counts as success",
        "A job that waits for success never starts after a failure",
        RULES,
        "                is_met = self.status is JobStatus.SUCCEEDED\n",
        "                is_met = is_over\n",
        (f"{OF_RULES}::test_every_order_of_ends_leads_to_the_same",),
    ),
    Mutant(
        "one dependency is enough",
        "A job goes on once all that it waits for is met",
        RULES,
        "    if all(dependency.state is DependencyState.MET",
        "    if any(dependency.state is DependencyState.MET",
        (f"{OF_RULES}::test_every_order_of_ends_leads_to_the_same",),
    ),
    Mutant(
        "jobs of others can be waited for",
        "A job waits only for jobs of its owner; others look like jobs that never were",
        STORE_SQL,
        "AND kind = 'job' AND user_id = coalesce(CAST(:user_id AS bigint), user_id);",
        "AND kind = 'job' AND coalesce(CAST(:user_id AS bigint), user_id) > 0;",
        (f"{OF_REST}::test_jobs_of_others_do_not_exist",),
    ),
    Mutant(
        "a slot follows nothing",
        "A job is promised no start before what it waits for ends at the latest",
        CHAINS,
        "found = search.find_slot(job, None, floor.at)",
        "found = search.find_slot(job, None)",
        (f"{OF_CHAINS}::test_slots_follow_whatever_jobs_do",),
    ),
    Mutant(
        "a slot moves before what it follows",
        "A slot that moves to an earlier time stays behind what its job waits for",
        CHAINS,
        "return search.move_earlier(job, slot[0], floor.at)",
        "return search.move_earlier(job, slot[0])",
        (f"{OF_CHAINS}::test_slots_follow_whatever_jobs_do",),
    ),
    Mutant(
        "a slot is kept whatever it follows",
        "A slot is given up when what its job waits for ends later",
        CHAINS,
        "if floor.known_end <= start + IN_TIME and place.at < start + IN_TIME:",
        "if place.at < start + IN_TIME:",
        (f"{OF_CHAINS}::test_slots_follow_whatever_jobs_do",),
    ),
    Mutant(
        "a slot waits for its job",
        "GPUs don't stand idle in the slot of a job that is not released",
        CHAINS,
        "if floor.known_end <= start + IN_TIME and place.at < start + IN_TIME:",
        "if floor.known_end <= start + IN_TIME:",
        (f"{OF_CHAINS}::test_slots_follow_whatever_jobs_do",),
    ),
    Mutant(
        "slots are looked at in queue order",
        "What a slot follows is decided before it in one plan",
        CHAINS,
        "self.links.turns.add(job_id, (False, (0, 0, 0, job.seq)))",
        "self.links.turns.add(job_id, (False, place.picture.queue.order(job)))",
        (f"{OF_CHAINS}::test_what_a_slot_follows_is_decided_before_it",),
    ),
    Mutant(
        "slots that others follow make room",
        "A slot that another follows is never moved to a later time",
        "reservation_core/domain/planning/making_room.py",
        "and not self._picture.is_followed(job_id)",
        "and job_id",
        (f"{OF_CHAINS}::test_a_slot_that_another_follows_makes_no_room",),
    ),
    Mutant(
        "the ledger takes slots that begin too early",
        "The database refuses a slot that begins before what its job waits for ends",
        "migrations/versions/006x/0061_chain_slots.sql",
        "WHERE a.id IS NULL OR lower(NEW.during) <",
        "WHERE false AND lower(NEW.during) <",
        (f"{IN_THE_LEDGER}::test_the_ledger_refuses_a_slot_that_begins_too_early",),
    ),
    Mutant(
        "an extension breaks the promises behind it",
        "An extension promises the jobs behind it other starts",
        "reservation_core/usecases/jobs/extend.py",
        "await promise_dependants_anew(uow, change)",
        "_ = promise_dependants_anew",
        (f"{IN_THE_LEDGER}::test_an_extension_promises_the_jobs_behind_it_other_starts",),
    ),
    Mutant(
        "others in the queue are in no dependant's way",
        "While others wait, the p90 of a job that waits for jobs is its promise",
        "reservation_core/domain/planning/predictions/chained_starts.py",
        "is_alone = all(job_id in needed for job_id in picture.queue.jobs)",
        "is_alone = bool(needed)",
        (f"{OF_PREDICTIONS}::test_where_others_wait_its_promise_is_what_is_sure",),
    ),
    Mutant(
        "the planner knows only what a job first waited for",
        "A job that waits for fewer others is promised an earlier start",
        USE_CASE,
        "await wake_planner_for(uow, fewer_needs)",
        "_ = fewer_needs",
        (f"{IN_THE_LEDGER}::test_a_job_that_waits_for_fewer_others_is_promised_a_start",),
    ),
    Mutant(
        "drawings show everybody's jobs",
        "The drawing of the jobs around a job has those alone that its reader may see",
        "api_service/web/jobs/dependency_graph.py",
        "    user_id = visible_user(visit.principal)\n",
        "    user_id = None\n",
        ("tests/integration/api_service/web/jobs/test_dependency_graph.py::test_others_see_of_it_what_they_may_see",),
    ),
)
