"""Jobs without GPUs: what a node keeps for them is enough for all of them, and stays."""

from tests.mutants.mutant import Mutant

MIGRATIONS = "migrations/versions/"
USECASES = "tests/integration/reservation_core/usecases/"

JOBS_WITHOUT_GPUS = (
    Mutant(
        "the ledger adds up no jobs without GPUs",
        "No transaction gives jobs without GPUs more CPUs or memory than their node keeps for them",
        MIGRATIONS + "005x/0059_cpu_jobs.sql",
        "    IF FOUND THEN\n        RAISE EXCEPTION 'At % more",
        "    IF FALSE THEN\n        RAISE EXCEPTION 'At % more",
        (USECASES + "planning/test_cpu_jobs.py::test_the_ledger_refuses_more_than_a_node_keeps",),
    ),
    Mutant(
        "what a node keeps changes under its jobs",
        "What a node keeps for jobs without GPUs stays while a job there asks for amounts",
        MIGRATIONS + "005x/0059_cpu_jobs.sql",
        "    IF has_asking_jobs(NEW.id) THEN",
        "    IF FALSE THEN",
        (USECASES + "planning/test_cpu_jobs.py::test_a_part_of_each_node_is_kept_and_stays_while_jobs_ask_there",),
    ),
    Mutant(
        "the planner counts places alone",
        "The planner gives jobs without GPUs no more CPUs than their node keeps for them",
        "reservation_core/domain/pools/cpu_places.py",
        "            cpu_milli=node.spare.cpu_milli,",
        "            cpu_milli=node.spare.cpu_milli * 9,",
        ("tests/unit/reservation_core/domain/planning/test_cpu_jobs_against_oracle.py",),
    ),
)
