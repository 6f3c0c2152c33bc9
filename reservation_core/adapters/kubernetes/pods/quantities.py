"""Amounts as Kubernetes writes them: `500m`, `2`, `64Gi`, `1e3`."""

import math
import re
from decimal import Decimal

_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:([eE][+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)")
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(10**3), "M": Decimal(10**6),
    "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}  # fmt: skip


def read_quantity(text: object) -> Decimal:
    """Parse an amount in its base unit (cores, bytes, pieces), never negative. Raises ValueError."""
    match = _QUANTITY.fullmatch(str(text)) if isinstance(text, str | int) and not isinstance(text, bool) else None
    if match is None:
        raise ValueError(f"{text!r} is not an amount; write it like 500m, 2 or 64Gi")
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _SUFFIXES.get(suffix or "", Decimal(1))


def format_cores(cores: Decimal) -> str:
    """Format CPU cores, rounded up to thousandths: `2`, `2500m`."""
    thousandths = math.ceil(cores * 1000)
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def format_bytes(amount: Decimal) -> str:
    """Format bytes, rounded up, with the largest exact binary suffix: `64Gi`, `1000`."""
    whole = math.ceil(amount)
    for suffix in _BINARY:
        unit = int(_SUFFIXES[suffix])
        if whole and whole % unit == 0:
            return f"{whole // unit}{suffix}"
    return str(whole)
