"""CPUs and memory in words."""

from gpu_dev.display.amounts import kept_words, resource_words
from gpu_dev.wire.base import ResourcesOut
from gpu_dev.wire.nodes import KeptOut

GIB = 2**30


def test_one_cpu_is_one() -> None:
    assert resource_words(ResourcesOut(cpus=1, memory=2 * GIB, shm=None)) == "1 CPU, 2 GiB memory"
    assert resource_words(ResourcesOut(cpus=0.5, memory=None, shm=GIB)) == "0.5 CPUs, 1 GiB shm"
    for cpus, words in ((1, "1 of 1 CPU"), (2, "1 of 2 CPUs")):
        kept = KeptOut(cpus=cpus, cpus_free=1, memory_bytes=GIB, memory_bytes_free=GIB)
        assert kept_words(kept) == f"{words}, 1 GiB of 1 GiB"
