"""`python -m admission_webhook certs`: makes the webhook's certificates, and keeps them valid and trusted."""

import argparse
import asyncio
import re
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

from reservation_core.domain.network.serving_certificates import RenewalRules
from reservation_core.runtime.pods.webhook_certificates import KeptSecret, keep_secret, write_files
from reservation_core.runtime.processes.programs import run_with_settings
from reservation_core.runtime.processes.shutdown import stop_on_signals
from reservation_core.runtime.settings.components import CommonSettings

PROGRAM = "admission_webhook certs"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-zA-Z0-9*:]([-.:a-zA-Z0-9]{0,251}[a-zA-Z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `certs`."""
    parser.add_argument("--service", type=_label, required=True, metavar="NAME", help="the webhook's Service")
    parser.add_argument("--namespace", type=_label, required=True, metavar="NAME", help="where Service and Secret are")
    parser.add_argument("--name", type=_host, action="append", default=[], metavar="HOST", help="a further name in it")
    parser.add_argument("--secret", type=_object, metavar="NAME", help="the Secret that holds the certificates")
    parser.add_argument(
        "--configuration", type=_object, action="append", default=[], metavar="NAME",
        help="a MutatingWebhookConfiguration that has to trust them",
    )  # fmt: skip
    parser.add_argument(
        "--validating-configuration", type=_object, action="append", default=[], metavar="NAME",
        help="a ValidatingWebhookConfiguration that has to trust them",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", type=Path, metavar="DIR", help="write files instead, and ask no cluster")
    where.add_argument("--watch", action="store_true", help="go on, and renew what is due")
    parser.add_argument("--every", type=_seconds, default=60.0, metavar="S", help="seconds between two looks (60)")
    parser.add_argument("--valid-days", type=_days, default=365, metavar="N", help="how long a certificate lasts (365)")
    parser.add_argument("--renew-days", type=_days, metavar="N", help="how long before its end it is renewed (a third)")
    parser.add_argument(
        "--settle", type=_seconds, default=60.0, metavar="S",
        help="seconds that a new certificate is trusted before it is used (60)",
    )  # fmt: skip
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="how to reach the API server")


def run(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    valid = timedelta(days=chosen.valid_days)
    renew = valid / 3 if chosen.renew_days is None else timedelta(days=chosen.renew_days)
    if renew >= valid:
        parser.error("--renew-days must be less than --valid-days")
    names = frozenset([*_service_names(chosen.service, chosen.namespace), *chosen.name])
    if chosen.out is not None:
        return _write(chosen.out, chosen.namespace, chosen.secret or f"{chosen.service}-tls", names, valid)
    if chosen.secret is None:
        parser.error("name the Secret with --secret NAME, or write files with --out DIR")
    secret = KeptSecret(chosen.namespace, chosen.secret, chosen.configuration, chosen.validating_configuration)
    rules = RenewalRules(names, valid, renew, timedelta(seconds=chosen.settle))
    return run_with_settings(PROGRAM, CommonSettings, partial(_keep, chosen, secret, rules))


async def _keep(chosen: argparse.Namespace, secret: KeptSecret, rules: RenewalRules, settings: CommonSettings) -> None:
    if chosen.kubeconfig is not None:
        kubernetes = settings.kubernetes.model_copy(update={"kubeconfig": chosen.kubeconfig})
        settings = settings.model_copy(update={"kubernetes": kubernetes})
    stop: asyncio.Event | None = stop_on_signals() if chosen.watch else None
    await keep_secret(settings, secret, rules, stop, chosen.every)


def _write(folder: Path, namespace: str, secret: str, names: frozenset[str], valid: timedelta) -> int:
    try:
        write_files(folder, namespace, secret, names, valid)
    except OSError as problem:
        sys.stderr.write(f"{PROGRAM}: {problem}\n")
        return 2
    return 0


def _service_names(service: str, namespace: str) -> list[str]:
    short = f"{service}.{namespace}"
    return [service, short, f"{short}.svc", f"{short}.svc.cluster.local"]


def _label(text: str) -> str:
    return _matching(_LABEL, text, "a name of lower-case letters, digits and dashes, of 63 characters at most")


def _object(text: str) -> str:
    return _matching(_OBJECT, text, "an object's name")


def _host(text: str) -> str:
    return _matching(_NAME, text, "a host name or an IP address")


def _matching(pattern: re.Pattern[str], text: str, what: str) -> str:
    if pattern.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return text


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) <= 3650 and len(text) < 6):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to 3650")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to a day")
    return seconds
