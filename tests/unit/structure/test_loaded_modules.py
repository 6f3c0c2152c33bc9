"""Programs load no library that they can do without: each costs time at the start, and memory."""

import subprocess
import sys

WITHOUT_DATABASE = (
    "admission_webhook.__main__", "admission_webhook.certs", "admission_webhook.serve", "gpu_admission.__main__",
    "gpu_admission.serve", "gpu_dev.main", "gpu_scheduler.__main__", "gpu_scheduler.health",
)  # fmt: skip
DRIVERS = ("asyncpg", "pgmq", "sqlalchemy")
LATER = ("alembic", "asyncssh", "authlib", "icalendar", "kubernetes")
"""What the standalone system loads only when somebody needs it."""

_PROGRAM = """
import importlib, sys
for module in sys.argv[2:]:
    importlib.import_module(module)
    loaded = sorted(set(sys.argv[1].split(",")) & sys.modules.keys())
    if loaded:
        sys.exit(f"{module} loads {', '.join(loaded)}")
"""


def loading(*modules: str, libraries: tuple[str, ...] = DRIVERS) -> str:
    """What a fresh interpreter says that loads these: nothing, or the first that loads one of the libraries."""
    command = [sys.executable, "-c", _PROGRAM, ",".join(libraries), *modules]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()


def test_programs_without_a_database_load_no_driver() -> None:
    assert loading(*WITHOUT_DATABASE) == ""


def test_a_module_that_loads_one_is_found() -> None:
    assert loading("reservation_core.adapters.postgres.connection.engine").startswith(
        "reservation_core.adapters.postgres.connection.engine loads"
    )


def test_the_standalone_system_starts_without_what_most_never_use() -> None:
    assert loading("standalone.system", libraries=LATER) == ""
