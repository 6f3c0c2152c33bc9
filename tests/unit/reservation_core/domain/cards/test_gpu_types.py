"""Drivers' names for cards become the words that people ask with."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reservation_core.domain.cards.gpu_types import GPU_TYPE, normalised_gpu_type, usual_memory_bytes


@pytest.mark.parametrize(
    ("name", "gpu_type"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("A100", "a100"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A2", "a2"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla V100S-PCIE-32GB", "v100-32gb"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx-3080-ti"),
        ("NVIDIA GeForce RTX 4070 SUPER", "rtx-4070-super"),
        ("NVIDIA GeForce GTX 1080 Ti", "gtx-1080-ti"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("Quadro RTX 8000", "rtx-8000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI250X / MI250", "mi250x"),
        ("AMD Instinct MI50", "mi50"),
        ("NVIDIA TITAN V", "titan-v"),
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA L20", "l20"),
        ("Intel Gaudi 2", "gaudi2"),
        # as the labels of nodes have them
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("NVIDIA-H100-NVL", "h100-nvl"),
        ("NVIDIA-A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA-A100-80GB-PCIe", "a100-80gb"),
        ("Tesla-V100-SXM2-32GB", "v100-32gb"),
        ("NVIDIA-GeForce-RTX-3080-Ti", "rtx-3080-ti"),
        ("NVIDIA-RTX-6000-Ada-Generation", "rtx-6000-ada"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "rtx-pro-6000"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "a100-80gb-mig-1g.10gb"),
        ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "h100-mig-3g.40gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "h100-mig-1c.3g.40gb"),
        ("Tesla-T4-SHARED", "t4-shared"),
        ("NVIDIA Zeta 9000 (rev. 2)", "zeta-9000-rev.-2"),
        ("NVIDIA", "nvidia"),
        ("???", "unknown"),
        ("", "unknown"),
    ],
)
def test_names_of_cards(name: str, gpu_type: str) -> None:
    assert normalised_gpu_type(name) == gpu_type


@settings(deadline=None)
@given(st.text(max_size=200))
def test_whatever_a_driver_says_becomes_a_type_that_can_be_asked_for(name: str) -> None:
    assert GPU_TYPE.fullmatch(normalised_gpu_type(name))


def test_a_type_is_its_own_type() -> None:
    for gpu_type in ("h100", "h200", "b200", "l40s", "t4", "a100-80gb", "rtx-6000-ada", "mi300x", "t4-shared"):
        assert normalised_gpu_type(gpu_type) == gpu_type


def test_memory_of_simulated_cards() -> None:
    assert usual_memory_bytes("h100") == 80 * 2**30
    assert usual_memory_bytes("zeta-9000") is None
