"""The command line of the extender: its options, and what becomes of the settings and of the log by them."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from gpu_admission.flags import flag_values
from gpu_admission.flags.go_flags import Flag, read_flags
from pod_scheduling.runtime.settings.admission import AdmissionSettings
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY
from reservation_core.runtime.processes.log_files import LogPlaces
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.settings.values import LogLevel

_DEBUG_FROM = 4
"""From this klog level on every answer is logged: what Kubernetes' own components call debugging."""

_SETTINGS: tuple[tuple[str, str, str, str, str, str], ...] = (
    # option, value, group, field, what it must be, what it is
    ("address", "HOST:PORT", "admission", "address", "host:port", "where it listens (127.0.0.1:3456)"),
    ("pprofAddress", "HOST:PORT", "admission", "debug_address", "host:port, or empty",
     "where profiles are (127.0.0.1:3457); empty: nowhere"),
    ("kubeconfig", "FILE", "kubernetes", "kubeconfig", "a file",
     "how to reach the API server; without it as inside a cluster"),
    ("master", "URL", "kubernetes", "server", "a URL such as https://10.0.0.1:6443",
     "the API server's address, instead of the kubeconfig's; without one nobody in particular asks it"),
    ("tls-cert", "FILE", "admission", "tls_cert", "a file", "PEM: the certificate, its chain; without it plain HTTP"),
    ("tls-key", "FILE", "admission", "tls_key", "a file", "PEM: its key, without a password"),
    ("gpu-model-label", "LABEL", "admission", "model_label", "a label's name",
     "the label of nodes that names their GPU model (nvidia.com/gpu.product)"),
    ("gpu-pool-label", "LABEL", "admission", "pool_label", "a label's name",
     "the label of nodes that names their pool (gpu-pool)"),
    ("volcano-shape", "SHAPE", "admission", "volcano_shape", "auto, v1.7, v1.8 or v1.10",
     "in which version's words Volcano is answered (auto)"),
    ("share-cards", "WHO", "admission", "share_cards", "gpu-manager or policy",
     "in whose order shares get the GPUs of a node: gpu-manager's own, or the policy's (gpu-manager)"),
    ("assume-at", "WHEN", "admission", "assume_at", "auto, bind or filter",
     "from when on GPUs count as a pod's: filter, bind, or auto: filter until its scheduler has us bind (auto)"),
    ("candidates", "WHICH", "admission", "candidates", "all or best",
     "which of the suitable nodes kube-scheduler gets: all, or only the best (all)"),
    ("policy", "POLICY", "admission", "policy", "binpack, spread, fgd or priced",
     f"how nodes and GPUs are chosen: binpack, spread, fgd or priced ({DEFAULT_POLICY})"),
    ("leader-elect", "", "admission", "leader_elect", "true or false", "of several replicas one answers (false)"),
)  # fmt: skip
_SWITCHES = frozenset({"leader-elect"})


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed command line. `unheeded` are options that mean nothing here, with the reason."""

    help: bool = False
    version: bool = False
    level: int | None = None
    logs: LogPlaces = field(default_factory=LogPlaces)
    unheeded: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)


def known_flags() -> list[Flag]:
    """Every option, in the order of the alphabet."""
    flags = [
        Flag(
            name, value, about, flag_values.switch if name in _SWITCHES else str, "true" if name in _SWITCHES else None
        )
        for name, value, _, _, _, about in _SETTINGS
    ]
    flags += [
        Flag("alsologtostderr", "", "log to standard error as well as to files", flag_values.switch, "true"),
        Flag("log-dir", "DIR", "write log files there, too"),
        Flag("logtostderr", "", "false: only to log files (true)", flag_values.switch, "true"),
        Flag("stderrthreshold", "SEVERITY", "with --logtostderr=false: what goes to standard error all the same (2)",
             flag_values.severity),
        Flag("v", "LEVEL", f"how much is logged; from {_DEBUG_FROM} on every answer", flag_values.level, short="v"),
        Flag("log-backtrace-at", "FILE:LINE", "has no effect", flag_values.trace_location),
        Flag("log-flush-frequency", "DURATION", "has no effect: each line is written at once", flag_values.duration),
        Flag("vmodule", "PATTERN=N,...", "has no effect: --v is for all", flag_values.modules),
        Flag("version", "", "print the version and end", flag_values.version, "true"),
        Flag("help", "", "print this and end", flag_values.switch, "true", "h"),
    ]  # fmt: skip
    return sorted(flags, key=lambda flag: flag.name.lower())


def read_options(arguments: Sequence[str]) -> Options:
    """Parse the command line. Raises FlagError."""
    given = read_flags(arguments, known_flags())

    def said(name: str, read: Callable[[str], Any], otherwise: Any) -> Any:
        return read(given[name]) if name in given else otherwise

    folder = given.get("log-dir") or None
    to_stderr = bool(said("logtostderr", flag_values.switch, True))
    unheeded = {
        name: why
        for name, why in (
            ("log-backtrace-at", "logs show no source lines"),
            ("log-flush-frequency", "each line is written at once"),
            ("vmodule", "--v is for everything"),
        )
        if given.get(name)
    }
    if folder is None and not to_stderr:
        unheeded["logtostderr"] = "without --log-dir there are no files to log to"
        to_stderr = True
    if "stderrthreshold" in given and to_stderr:
        unheeded["stderrthreshold"] = "everything goes to standard error"
    if folder is None and said("alsologtostderr", flag_values.switch, False):
        unheeded["alsologtostderr"] = "without --log-dir there are no files to log to"
    return Options(
        help=said("help", flag_values.switch, False),
        version=said("version", flag_values.version, False),
        level=said("v", flag_values.level, None),
        logs=LogPlaces(
            folder=None if folder is None else Path(folder),
            everything_to_stderr=to_stderr or said("alsologtostderr", flag_values.switch, False),
            stderr_from=said("stderrthreshold", flag_values.severity, "ERROR"),
        ),
        unheeded=unheeded,
        given={name: given[name] for name, *_ in _SETTINGS if name in given},
    )


def applied(options: Options, settings: AdmissionSettings) -> AdmissionSettings:
    """The settings, overridden by the command line. Raises SettingsError."""
    parts: dict[str, BaseModel] = {"admission": settings.admission, "kubernetes": settings.kubernetes}
    for name, _, group, setting, wanted, _ in _SETTINGS:
        if name in options.given:
            value = options.given[name]
            parts[group] = _changed(parts[group], setting, value, f"--{name} must be {wanted}; it is {value[:300]!r}")
    changed = settings.model_copy(update=parts | {"log_level": _log_level(options, settings)})
    if (changed.admission.tls_cert is None) != (changed.admission.tls_key is None):
        raise SettingsError("--tls-cert and --tls-key go together: give both, or neither for plain HTTP.")
    return changed


def _changed(part: BaseModel, setting: str, value: str, told: str) -> BaseModel:
    empty_is_none = type(part).model_fields[setting].default is None
    try:
        return type(part).model_validate(part.model_dump() | {setting: None if empty_is_none and not value else value})
    except ValidationError:
        raise SettingsError(told) from None


def _log_level(options: Options, settings: AdmissionSettings) -> LogLevel:
    if options.level is not None:
        return _of_klog(options.level)
    told = os.environ.get("LOG_LEVEL", "").strip()
    if not told or "log_level" in settings.model_fields_set:
        return settings.log_level
    try:
        return _of_klog(flag_values.level(told))
    except ValueError:
        pass
    match told.upper():
        case "DEBUG" | "INFO" | "WARNING" | "ERROR" as named:
            return named
        case _:
            raise SettingsError(
                f"LOG_LEVEL must be a number as for --v, or DEBUG, INFO, WARNING or ERROR; it is {told[:50]!r}."
            )


def _of_klog(level: int) -> LogLevel:
    return "DEBUG" if level >= _DEBUG_FROM else "INFO"
