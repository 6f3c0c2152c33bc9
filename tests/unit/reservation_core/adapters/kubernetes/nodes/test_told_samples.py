"""Xid errors that agents tell again, as answers may be lost and leaders end."""

import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from reservation_core.adapters.kubernetes.nodes.told_samples import REPEATED_S, TakenXids, ToldSample, XidMemory
from reservation_core.domain.gpu_use.gpu_errors import SAME_XID
from reservation_core.domain.gpu_use.samples import GpuSample

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
BOOT_S = 5000.0


def at(time_s: float) -> datetime:
    return AT + timedelta(seconds=time_s)


@pytest.mark.parametrize("seed", range(200))
def test_each_error_is_taken_once_at_its_time_whatever_answers_are_lost(seed: int) -> None:
    chance = random.Random(seed)
    agent, leader = XidMemory(), TakenXids()
    restarts = seed % 2 == 1
    real: list[tuple[float, str, int]] = []
    taken: list[GpuSample] = []
    lost_in_a_row = 0
    for look in range(120):
        time_s = 10.0 * look
        samples = [
            GpuSample(f"GPU-{gpu}", at(time_s), xid=chance.choice([48, 79, 95]) if chance.random() < 0.1 else None)
            for gpu in range(2)
            if chance.random() < 0.9
        ]
        real += [(time_s, sample.uuid, sample.xid) for sample in samples if sample.xid is not None]
        late_s = chance.random() * 3
        told = agent.told(samples, at(9e6), BOOT_S + time_s + late_s)
        wire = msgspec.json.decode(msgspec.json.encode(told), type=list[ToldSample])
        lost_in_a_row = lost_in_a_row + 1 if chance.random() < 0.3 and look < 116 else 0
        if lost_in_a_row in range(1, 4):
            continue
        if restarts and chance.random() < 0.1:
            leader = TakenXids()
        taken += leader.take(wire, at(time_s), "node")
    errors = [sample for sample in taken if sample.xid is not None]
    for sample in errors:
        assert any(
            (sample.uuid, sample.xid) == (uuid, xid) and abs(sample.at - at(time_s)) < SAME_XID
            for time_s, uuid, xid in real
        )
    for time_s, uuid, xid in real:
        found = [sample for sample in errors if (sample.uuid, sample.xid) == (uuid, xid)]
        assert any(abs(sample.at - at(time_s)) < SAME_XID for sample in found)
    if not restarts:
        assert len(errors) == len(real)


def test_an_error_is_told_again_for_a_quarter_of_an_hour() -> None:
    agent = XidMemory()
    agent.told([GpuSample("GPU-0", AT, 0.5, xid=79)], AT, BOOT_S)
    for age_s, number in ((0.5, 1), (REPEATED_S, 1), (REPEATED_S + 1, 0), (0.5, 0)):
        [told] = agent.told([GpuSample("GPU-0", AT, 0.5)], AT, BOOT_S + age_s)
        assert [earlier.age_s for earlier in told.earlier_xids] == [age_s] * number


def test_a_gpu_without_a_sample_has_its_errors_alone() -> None:
    agent, leader = XidMemory(), TakenXids()
    agent.told([GpuSample("GPU-0", AT, 0.5, xid=79)], AT, BOOT_S)
    told = agent.told([], AT, BOOT_S + 20)
    assert leader.take(told, AT, "node") == [GpuSample("GPU-0", at(-20), xid=79, node="node")]


def test_an_answer_that_is_given_again_has_no_new_error() -> None:
    told = XidMemory().told([GpuSample("GPU-0", AT, 0.5, xid=79)], AT, BOOT_S)
    leader = TakenXids()
    assert [sample.xid for _ in range(2) for sample in leader.take(told, AT, "node")] == [79, None]


def test_errors_of_an_agent_of_before_have_no_number_and_are_taken() -> None:
    told = [ToldSample("GPU-0", AT, 0.5, xid=79)]
    leader = TakenXids()
    assert [sample.xid for _ in range(2) for sample in leader.take(told, AT, "node")] == [79, 79]


def test_a_leader_of_before_takes_no_error_twice() -> None:
    agent = XidMemory()
    agent.told([GpuSample("GPU-0", AT, 0.5, xid=79)], AT, BOOT_S)
    told = agent.told([GpuSample("GPU-0", AT, 0.5)], AT, BOOT_S + 10)
    assert msgspec.json.decode(msgspec.json.encode(told), type=list[GpuSample]) == [GpuSample("GPU-0", AT, 0.5)]
