"""`python -m gpu_admission`: the extender of kube-scheduler and Volcano, until SIGTERM or SIGINT."""

import sys
from functools import partial

import structlog

from gpu_admission.flags.go_flags import FlagError, help_text
from gpu_admission.flags.options import Options, applied, known_flags, read_options
from gpu_admission.version import versions
from pod_scheduling.runtime.settings.admission import AdmissionSettings
from reservation_core.runtime.processes.programs import describe_settings, run_with_settings
from reservation_core.runtime.processes.shutdown import stop_on_signals

PROGRAM = "gpu_admission"
_ABOUT = "Answers kube-scheduler and Volcano as their extender: quotas by GPU model, shared GPUs, whole nodes."
_log = structlog.get_logger(__name__)


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    try:
        options = read_options(arguments)
    except FlagError as problem:
        sys.stderr.write(f"{PROGRAM}: {problem}\n")
        return 2
    if options.help:
        sys.stdout.write(help_text(f"python -m {PROGRAM}", _ABOUT, known_flags()))
        sys.stdout.write(f"\n{describe_settings(AdmissionSettings)} Options come first.\n")
        return 0
    if options.version:
        told = versions()
        sys.stdout.write(f"{PROGRAM} {told['version']}\n")
        return 0
    return run_with_settings(
        PROGRAM, AdmissionSettings, partial(_run, options), changed=partial(applied, options), logs=options.logs
    )


async def _run(options: Options, settings: AdmissionSettings) -> None:
    # Loaded only now: --version and --help need nothing of it.
    from gpu_admission.serve import serve  # noqa: PLC0415

    for option, why in options.unheeded.items():
        _log.warning("option_without_effect", option=f"--{option}", why=why)
    await serve(settings, stop_on_signals())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
