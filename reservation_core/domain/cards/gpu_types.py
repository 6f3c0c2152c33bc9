"""A short name for each GPU model: drivers say `NVIDIA H100 80GB HBM3`, users ask for `h100`.

Node labels hold the same names without spaces (`NVIDIA-H100-80GB-HBM3`). A slice of a GPU or a shared GPU is another
type than a whole one: an `h100` is always whole.
"""

import re
from collections.abc import Mapping

GPU_TYPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
"""The form of a normalised type, as in requests and in the ledger."""

UNKNOWN = "unknown"

# First match wins, so longer names stand before those that they contain. `{}` takes the memory in GB.
_MODELS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (r"\bGB300\b", "gb300"),
        (r"\bGB200\b", "gb200"),
        (r"\bGB10\b", "gb10"),
        (r"\bB300\b", "b300"),
        (r"\bB200\b", "b200"),
        (r"\bB100\b", "b100"),
        (r"\bGH200\b", "gh200"),
        (r"\bH200\b", "h200"),
        (r"\bH100\b.*\bNVL\b", "h100-nvl"),
        (r"\bH100\b", "h100"),
        (r"\bH800\b", "h800"),
        (r"\bH20\b", "h20"),
        (r"\bA100\b.*?\b(\d+)\s*GB", "a100-{}gb"),
        (r"\bA100\b", "a100"),
        (r"\bA800\b", "a800"),
        (r"\bA30\b", "a30"),
        (r"\bA40\b", "a40"),
        (r"\bA16\b", "a16"),
        (r"\bA10G\b", "a10g"),
        (r"\bA10\b", "a10"),
        (r"\bA2\b", "a2"),
        (r"\bL40S\b", "l40s"),
        (r"\bL40\b", "l40"),
        (r"\bL4\b", "l4"),
        (r"\bL20\b", "l20"),
        (r"\bL2\b", "l2"),
        (r"\bV100S?\b.*?\b(\d+)\s*GB", "v100-{}gb"),
        (r"\bV100S?\b", "v100"),
        (r"\bP100\b", "p100"),
        (r"\bP40\b", "p40"),
        (r"\bP4\b", "p4"),
        (r"\bM60\b", "m60"),
        (r"\bT4\b", "t4"),
        (r"\bK80\b", "k80"),
        (r"\bMI(\d{2,3}[AX]?)\b", "mi{}"),
        (r"\bGaudi\s*(\d)\b", "gaudi{}"),
        (r"\bRTX\s+PRO\s+(\d{4})\b", "rtx-pro-{}"),
        (r"\bRTX\s+(\d{4})\s+Ada\b", "rtx-{}-ada"),
        (r"\bRTX\s+(A\d{4})\b", "rtx-{}"),
        (r"\b(?:GeForce\s+|TITAN\s+)?([GR]TX\s+\d{3,4}(?:\s+Ti)?(?:\s+SUPER)?(?:\s+D)?)\b", "{}"),
        (r"\bTITAN\s+(\w+)\b", "titan-{}"),
    )
)
_VENDOR = re.compile(r"\b(nvidia|amd|intel|tesla|geforce|radeon|instinct|graphics|corporation)\b")

_SLICE = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb)\b", re.IGNORECASE)
"""An instance, or a part of its multiprocessors: a compute instance, as `1c.3g.40gb`."""
_SHARED = re.compile(r"\bSHARED$", re.IGNORECASE)

_FIRST_INSTANCE, _MOST_INSTANCES = 64, 8
"""NVML knows at most 64 GPUs, and MIG at most 7 instances of each."""
_GIB = 2**30
_MEMORY_GIB = {
    "b200": 180, "gb200": 186, "h200": 141, "h100": 80, "a100-80gb": 80, "a100-40gb": 40, "a100": 40, "a10g": 24,
    "a10": 24, "l40s": 48, "l40": 48, "l4": 24, "v100": 16, "v100-32gb": 32, "v100-16gb": 16, "t4": 16, "mi300x": 192,
}  # fmt: skip


def normalised_gpu_type(name: str) -> str:
    """The type of a GPU from its driver's name; a slug of the name for an unknown model.

    Always matches GPU_TYPE; `unknown` for a name without a letter or digit.
    """
    spaced = re.sub(r"[\s_-]+", " ", name)
    for pattern, model in _MODELS:
        if match := pattern.search(spaced):
            return _slug(model.format(*match.groups()) + _slice_suffix(spaced))
    return _slug(_VENDOR.sub(" ", name.lower())) or _slug(name) or UNKNOWN


class TypeNames:
    """Names of types: the administrators' for a product (in any spelling that labels allow), else our own."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = {_as_label(product): word for product, word in words.items() if GPU_TYPE.fullmatch(word)}

    def of(self, product: str) -> str:
        """A product's type."""
        return self._words.get(_as_label(product)) or normalised_gpu_type(product)


DEFAULT_NAMES = TypeNames({})


def _as_label(product: str) -> str:
    """A product as a label value, which has no spaces; drivers' names become the same."""
    return re.sub(r"[\s_-]+", "-", product.strip().lower())


def _slice_suffix(spaced: str) -> str:
    mig_slice = _SLICE.search(spaced)
    suffix = "" if mig_slice is None else f"-mig-{mig_slice[1]}"
    return suffix + ("-shared" if _SHARED.search(spaced) else "")


def is_instance(uuid: str | None) -> bool:
    """Whether a UUID is that of a MIG instance, which CUDA knows by its UUID alone."""
    return uuid is not None and uuid.startswith("MIG-")


def instance_index(gpu: int, number: int) -> int:
    """The index of a MIG instance, by those of its GPU and of the instance within it."""
    return _FIRST_INSTANCE + _MOST_INSTANCES * gpu + number


def whole_gpu(index: int, uuid: str | None) -> int:
    """The index of the GPU that an index is, or is an instance of."""
    return (index - _FIRST_INSTANCE) // _MOST_INSTANCES if is_instance(uuid) else index


def usual_memory_bytes(gpu_type: str) -> int | None:
    """The memory of a model in bytes, for simulated GPUs; None for models not listed here."""
    size = _MEMORY_GIB.get(gpu_type)
    return None if size is None else size * _GIB


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-._")[:63].rstrip("-._")
