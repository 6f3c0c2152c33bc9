"""What a look at the cluster says."""

from structlog.testing import capture_logs

from availability_updater.update import run_once
from reservation_core.runtime.wiring import Runtime


async def test_one_line_tells_how_much_changed_and_the_rest_is_for_who_looks_closely(runtime: Runtime) -> None:
    with capture_logs() as lines:
        changes = await run_once(runtime)
    assert len(changes) == 5
    assert [line for line in lines if line["log_level"] == "info"] == [
        {"event": "the inventory changed", "log_level": "info", "node_added": 1, "gpu_added": 4}
    ]
    details = [line for line in lines if line["log_level"] == "debug"]
    assert [(line["kind"], line["index"]) for line in details] == [
        ("node_added", None),
        *(("gpu_added", index) for index in range(4)),
    ]
    # A plain word and not an enum's repr, which is what a StrEnum shows of itself inside a dict.
    assert type(details[1]["after"]["condition"]) is str


async def test_nothing_is_said_when_nothing_changed(runtime: Runtime) -> None:
    await run_once(runtime)
    with capture_logs() as lines:
        assert await run_once(runtime) == []
    assert lines == []
