"""`python -m standalone` runs the system in the foreground; `python -m standalone psql` opens psql on its database."""

import gc
import os
import sys

_ABOUT = (
    "Runs the whole system in one process, in the foreground: API, processor, updater and expiry, with an embedded "
    "PostgreSQL (unless GPU_DEV_DATABASE_URL names one) and the local cluster. "
    "`python -m standalone psql [arguments]` opens psql on its database."
)


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code: 0 ended in order, 1 failed, 2 unusable settings."""
    if arguments[:1] == ["psql"]:
        from standalone.psql import open_psql  # noqa: PLC0415 - psql starts at once without the system's modules

        try:
            return open_psql(arguments[1:])
        finally:
            gc.freeze()  # Python's end leaves alone what is loaded
    if sys.stderr.isatty():
        os.environ.setdefault("GPU_DEV_LOG_JSON", "false")

    gc.disable()  # loaded modules stay: searching them for garbage again and again takes a fifth of the start
    from reservation_core.adapters.postgres.connection.migrating import MigrationError  # noqa: PLC0415
    from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError  # noqa: PLC0415
    from reservation_core.runtime.processes.programs import run_program  # noqa: PLC0415
    from reservation_core.runtime.settings.components import StandaloneSettings  # noqa: PLC0415
    from standalone.components import ComponentFailedError  # noqa: PLC0415
    from standalone.system import run_system  # noqa: PLC0415

    gc.enable()
    try:
        return run_program("standalone", _ABOUT, StandaloneSettings, run_system, arguments)
    except (EmbeddedPostgresError, MigrationError, ComponentFailedError) as error:
        sys.stderr.write(f"standalone: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
