"""Usage as CSV, for programs that read plain numbers."""

import csv
import io
from decimal import Decimal

from api_service.presenting.policy import usage_csv
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import GpuTime, UsageLine


def test_small_times_are_plain_numbers() -> None:
    time = GpuTime(held=Decimal("0.252805"), used=Decimal("0.1"), wasted=Decimal(0))
    [line] = csv.DictReader(io.StringIO(usage_csv(UsageBy.USER, [UsageLine("ann", time)], {})))
    assert (line["held_gpu_s"], line["held_gpu_hours"]) == ("0.252805", "0.000070")
    assert not any("e" in value for name, value in line.items() if name != "user")
