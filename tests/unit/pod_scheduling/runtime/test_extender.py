"""What the extender's runtime does beside: a fleet that stands still for who thinks about it."""

from pod_scheduling.domain.placement.fleet import Fleet
from pod_scheduling.domain.placement.tasks import NodeShape, Spot, Task
from pod_scheduling.runtime.extender import _picture


def test_a_picture_of_the_fleet_stays_as_it_was() -> None:
    fleet = Fleet()
    fleet.put(NodeShape("a", 8000, 8000, 4, "h100"))
    fleet.take("one", Task(1000, 100, 1), Spot("a", (0,)))
    picture = _picture(fleet)
    fleet.take("two", Task(1000, 100, 2), Spot("a", (1, 2)))
    for number in range(50):
        fleet.put(NodeShape(f"n{number}", 8000, 8000, 8, f"type-{number}"))
    fleet.drop("a")
    assert list(picture) == ["a"]
    assert picture.gpu_types == ["h100"]
    assert [int(amount) for amount in picture.whole_free[picture.alive]] == [3]
    assert len(picture.fitting(Task(0, 0, 3), None)) == 1
