"""What the database itself refuses of admissions, whatever the code does."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

MINUTE = timedelta(minutes=1)
ADD = (
    "INSERT INTO admissions (booking_id, pod_uid, namespace, name, gpus, admitted_at, ended_at, recorded_at) "
    "VALUES (:booking, :pod, 'lab', 'pod', :gpus, :begin, :end, :begin)"
)


async def admit(seed: Any, booking: str, begin: int, end: int | None, *, pod: str = "u-1", gpus: int = 1) -> None:
    await seed.run(
        ADD,
        booking=booking,
        pod=pod,
        gpus=gpus,
        begin=seed.now + begin * MINUTE,
        end=None if end is None else seed.now + end * MINUTE,
    )


async def test_a_pod_uses_one_booking_at_a_time(seed: Any) -> None:
    user = await seed.user()
    for name in ("bkg-1", "bkg-2", "bkg-3"):
        await seed.job(name, user, "active", kind="booking")
    await admit(seed, "bkg-1", 0, 10)
    await admit(seed, "bkg-2", 10, None)
    await admit(seed, "bkg-1", 0, None, pod="u-2")
    for begin, end in ((5, 6), (9, None), (20, 30), (50, None)):
        with pytest.raises(IntegrityError, match="admissions_one_at_a_time"):
            await admit(seed, "bkg-3", begin, end)


async def test_what_is_no_admission_is_refused(seed: Any) -> None:
    user = await seed.user()
    await seed.job("bkg-1", user, "active", kind="booking")
    await seed.job("job-1", user)
    with pytest.raises(IntegrityError, match="check"):
        await admit(seed, "bkg-1", 5, 4)
    with pytest.raises(IntegrityError, match="check"):
        await admit(seed, "bkg-1", 0, None, gpus=0)
    with pytest.raises(IntegrityError, match="check"):
        await admit(seed, "job-1", 0, None)
    with pytest.raises(IntegrityError, match="foreign key"):
        await admit(seed, "bkg-2", 0, None)
