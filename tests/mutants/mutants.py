"""All mutants, in the order of the page."""

from tests.mutants.app_mutants import OPEN_APPS
from tests.mutants.dependency_mutants import DEPENDENCIES
from tests.mutants.file_mutants import FILES_OF_JOBS
from tests.mutants.flow_mutants import FLOWS
from tests.mutants.ledger_mutants import LEDGER
from tests.mutants.operation_mutants import OPERATION
from tests.mutants.preemption_mutants import PREEMPTION
from tests.mutants.rule_mutants import RULES
from tests.mutants.secret_mutants import SECRETS
from tests.mutants.session_mutants import SESSIONS
from tests.mutants.stream_mutants import STREAMS
from tests.mutants.trust_mutants import TRUST
from tests.mutants.use_mutants import USE_OF_GPUS

MUTANTS = (
    *LEDGER, *FLOWS, *RULES, *OPERATION, *TRUST, *SECRETS, *SESSIONS, *OPEN_APPS, *STREAMS, *USE_OF_GPUS, *DEPENDENCIES,
    *FILES_OF_JOBS, *PREEMPTION,
)  # fmt: skip
