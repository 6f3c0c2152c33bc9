"""All mutants, in the order of the page."""

from tests.mutants.guards.app_mutants import OPEN_APPS
from tests.mutants.guards.cpu_job_mutants import JOBS_WITHOUT_GPUS
from tests.mutants.guards.dependency_mutants import DEPENDENCIES
from tests.mutants.guards.file_mutants import FILES_OF_JOBS
from tests.mutants.guards.flow_mutants import FLOWS
from tests.mutants.guards.ledger_mutants import LEDGER
from tests.mutants.guards.operation_mutants import OPERATION
from tests.mutants.guards.preemption_mutants import PREEMPTION
from tests.mutants.guards.rule_mutants import RULES
from tests.mutants.guards.secret_mutants import SECRETS
from tests.mutants.guards.session_mutants import SESSIONS
from tests.mutants.guards.stream_mutants import STREAMS
from tests.mutants.guards.trust_mutants import TRUST
from tests.mutants.guards.use_mutants import USE_OF_GPUS

MUTANTS = (
    *LEDGER, *FLOWS, *RULES, *OPERATION, *TRUST, *SECRETS, *SESSIONS, *OPEN_APPS, *STREAMS, *USE_OF_GPUS, *DEPENDENCIES,
    *FILES_OF_JOBS, *PREEMPTION, *JOBS_WITHOUT_GPUS,
)  # fmt: skip
