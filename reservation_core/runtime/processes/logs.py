"""Logging of every process: structlog to stderr, one JSON object a line (or text, with `GPU_DEV_LOG_JSON=false`).

Lines of libraries that use the standard library get the same form. Nothing is redacted here, as secrets are never
logged: types that hold one hide it in their repr.
"""

import logging
import sys
from collections.abc import Sequence
from typing import Any

import structlog
from structlog.typing import Processor

from reservation_core.ports.traces import known_traces
from reservation_core.runtime.processes.log_files import FinishedOrForeign, HandlerLogger
from reservation_core.runtime.settings.components import CommonSettings

_LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR}


def configure(settings: CommonSettings, handlers: Sequence[logging.Handler] = ()) -> None:
    """Set up logging for this process, once, before the first line: to stderr, or to these handlers."""
    level = _LEVELS[settings.log_level]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _name_trace,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    last: list[Processor]
    if settings.log_json:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        last = [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                # The default prints every local variable, secrets among them.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=((lambda *_: HandlerLogger(handlers)) if handlers else structlog.PrintLoggerFactory(sys.stderr)),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = handlers or [logging.StreamHandler(sys.stderr)]
    for handler in root.handlers:
        handler.setFormatter(
            FinishedOrForeign(
                foreign_pre_chain=[*shared, _name_of_library],
                processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
            )
        )
    # Libraries log warnings and errors only; our own lines come through structlog.
    root.setLevel(max(level, logging.WARNING))


def _name_trace(_logger: Any, _method: str, event: Any) -> Any:
    """Give a line that names a job, or a pod of one, the id of its trace, if it has one."""
    job = event.get("job")
    if job is None and isinstance(pod := event.get("pod"), str):
        job = pod.rsplit("-", 2)[0]  # see PodName
    trace_id = known_traces.id_of(job) if isinstance(job, str) else None
    return event if trace_id is None else {"trace_id": trace_id, **event}


def _name_of_library(_logger: Any, _method: str, event: Any) -> Any:
    record = event.get("_record")
    if record is not None:
        event["logger"] = record.name
    return event
