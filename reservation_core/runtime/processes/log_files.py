"""Log destinations: standard error, for all lines or from a severity on, and files in a folder."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partialmethod
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

from structlog.stdlib import ProcessorFormatter

from reservation_core.runtime.settings.error import SettingsError

_FILE_BYTES = 100 * 2**20
_FILES_KEPT = 9
_SEVERITIES = {"INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}


@dataclass(frozen=True, slots=True)
class LogPlaces:
    """`folder`: for log files. `stderr_from` applies unless everything goes to standard error."""

    folder: Path | None = None
    everything_to_stderr: bool = True
    stderr_from: Literal["INFO", "WARNING", "ERROR", "FATAL"] = "ERROR"

    def open(self, program: str) -> list[logging.Handler]:
        """Open the log handlers. Raises SettingsError when no file can be written.

        A file has at most 100 MiB; nine older ones are kept as `PROGRAM.log.1` and so on.
        """
        stderr = logging.StreamHandler(sys.stderr)
        if not self.everything_to_stderr:
            stderr.setLevel(_SEVERITIES[self.stderr_from])
        if self.folder is None:
            return [stderr]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = RotatingFileHandler(
                self.folder / f"{program}.log", maxBytes=_FILE_BYTES, backupCount=_FILES_KEPT, encoding="utf-8"
            )
        except OSError as problem:
            raise SettingsError(
                f"No log can be written in {self.folder}: {problem.strerror or problem}. Choose another folder, or log"
                " to standard error alone."
            ) from problem
        return [stderr, file]


class HandlerLogger:
    """Writes structlog's finished lines to several handlers, by their levels."""

    def __init__(self, handlers: Sequence[logging.Handler]) -> None:
        self._handlers = tuple(handlers)

    def _write(self, level: int, line: str) -> None:
        record = logging.LogRecord("", level, "", 0, line, None, None)
        record.finished = True
        for handler in self._handlers:
            if level >= handler.level:
                handler.handle(record)

    debug = partialmethod(_write, logging.DEBUG)
    info = msg = log = partialmethod(_write, logging.INFO)
    warning = warn = partialmethod(_write, logging.WARNING)
    error = err = exception = failure = partialmethod(_write, logging.ERROR)
    critical = fatal = partialmethod(_write, logging.CRITICAL)


class FinishedOrForeign(ProcessorFormatter):
    """Keeps finished lines, and gives lines of libraries the form of ours."""

    def format(self, record: logging.LogRecord) -> str:
        return str(record.msg) if getattr(record, "finished", False) else super().format(record)
