"""Frames of `gpu-dev top`: GPUs with their use now, sorted and filtered, as many as the terminal has room for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gpu_dev.display.output import Column, Format, View, show_list
from gpu_dev.display.use_graphs import NO_DATA
from gpu_dev.display.views import holder_words
from gpu_dev.terminal import clean
from gpu_dev.wire.nodes import GpuNowOut
from reservation_core.domain.gpu_use.figures import memory_figure
from reservation_core.domain.policy.rule_words import counted
from reservation_core.domain.statuses import GpuState

_BAR = 10
_AROUND = 4
"""Lines of a frame besides the GPUs: two above, the column titles, and the keys below."""
KEYS = "q quit  u use  m memory  p power  t temp  n node  r reverse  / filter  y yours"
"""What the keys do, as a terminal of 80 columns shows it whole."""


class Sort(StrEnum):
    """The order: by a value, the highest first and GPUs without data last; or by node and index."""

    UTILISATION = "utilisation"
    MEMORY = "memory"
    POWER = "power"
    TEMPERATURE = "temperature"
    NODE = "node"


_VALUES: dict[Sort, Callable[[GpuNowOut], float | None]] = {
    Sort.UTILISATION: lambda gpu: gpu.utilisation,
    Sort.MEMORY: lambda gpu: gpu.memory_used_bytes,
    Sort.POWER: lambda gpu: gpu.power_w,
    Sort.TEMPERATURE: lambda gpu: gpu.temperature_c,
}
_SORTS = {sort.value[0]: sort for sort in Sort}
_UP, _DOWN, _PAGE_UP, _PAGE_DOWN = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"
_STEPS = {_UP: -1, "k": -1, _DOWN: 1, "j": 1, _PAGE_UP: -10, _PAGE_DOWN: 10}
_ESCAPE, _ENTERS, _ERASES, _QUITS = "\x1b", ("\r", "\n"), ("\x7f", "\b"), ("q", "\x03", "\x04")


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user chose to see; `typed` is a filter that is being typed, None where none is."""

    sort: Sort = Sort.UTILISATION
    is_reversed: bool = False
    words: str = ""
    only_yours: bool = False
    first: int = 0
    typed: str | None = None
    is_over: bool = False

    def press(self, key: str) -> "Choice":
        """The choice after a key; unknown keys change nothing."""
        if key == "\x03":
            return replace(self, is_over=True)
        if self.typed is not None:
            return self._type(self.typed, key)
        if key in _QUITS:
            return replace(self, is_over=True)
        if key in _STEPS:
            return replace(self, first=max(0, self.first + _STEPS[key]))
        if key in _SORTS:
            return replace(self, sort=_SORTS[key], first=0)
        match key:
            case "r":
                return replace(self, is_reversed=not self.is_reversed, first=0)
            case "y":
                return replace(self, only_yours=not self.only_yours, first=0)
            case "/":
                return replace(self, typed=self.words)
            case "\x1b":
                return replace(self, words="", only_yours=False, first=0)
            case _:
                return self

    def _type(self, typed: str, key: str) -> "Choice":
        if key in _ENTERS:
            return replace(self, words=typed.strip(), typed=None, first=0)
        if key == _ESCAPE:
            return replace(self, typed=None)
        if key in _ERASES:
            return replace(self, typed=typed[:-1])
        return replace(self, typed=typed + key) if key.isprintable() else self


def keys_in(text: str) -> Iterator[str]:
    """The keys of what a terminal sent: characters, and the sequences of arrows and paging keys."""
    at = 0
    while at < len(text):
        length = next((len(known) for known in _STEPS if len(known) > 1 and text.startswith(known, at)), 1)
        yield text[at : at + length]
        at += length


def chosen(gpus: Sequence[GpuNowOut], choice: Choice, view: "View[GpuNowOut] | None" = None) -> list[GpuNowOut]:
    """The GPUs that match every word of the filter, in the order that was chosen; states match as they are shown."""
    wanted = choice.words.casefold().split()
    state = next(column.value for column in (view or TOP).columns if column.title == "STATE")
    candidates = [gpu for gpu in gpus if not choice.only_yours or (gpu.holder is not None and gpu.holder.yours)]
    matching = [gpu for gpu in candidates if all(word in _searched(gpu, str(state(gpu))) for word in wanted)]
    value = _VALUES.get(choice.sort)
    if value is None:
        return matching[::-1] if choice.is_reversed else matching
    known = [gpu for gpu in matching if value(gpu) is not None]
    known.sort(key=lambda gpu: value(gpu) or 0.0, reverse=not choice.is_reversed)
    return known + [gpu for gpu in matching if value(gpu) is None]


def frame(
    gpus: Sequence[GpuNowOut], choice: Choice, rows: int | None = None, view: "View[GpuNowOut] | None" = None
) -> str:
    """Sums and a table of the chosen GPUs; with a number of rows, only GPUs that fit and a line of keys."""
    shown = chosen(gpus, choice, view)
    room = len(shown) if rows is None else _room(rows)
    first = max(0, min(choice.first, len(shown) - room))
    lines = [_sums(gpus), _chosen_words(gpus, shown, choice)]
    lines += show_list(shown[first : first + room], view or TOP, Format.TABLE).rstrip("\n").split("\n")
    if rows is not None:
        lines.append(KEYS if choice.typed is None else f"Filter: {clean(choice.typed)}_   Enter applies, Esc leaves it")
    return "\n".join(lines)


def fitted(gpus: Sequence[GpuNowOut], choice: Choice, rows: int, view: "View[GpuNowOut] | None" = None) -> Choice:
    """The choice, scrolled no farther than to the last GPU."""
    return replace(choice, first=max(0, min(choice.first, len(chosen(gpus, choice, view)) - _room(rows))))


def _room(rows: int) -> int:
    return max(1, rows - _AROUND)


def _sums(gpus: Sequence[GpuNowOut]) -> str:
    used = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    power = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    held = sum(gpu.state is GpuState.HELD for gpu in gpus)
    words = f"{counted(len(gpus), 'GPU')}, {held} held"
    words += f", mean utilisation {sum(used) / len(used):.0%}" if used else ", no samples"
    words += f", {sum(power) / 1000:.1f} kW" if power else ""
    words += f", {len(gpus) - len(used)} without data" if used and len(used) < len(gpus) else ""
    return f"{words}. Simulated." if any(gpu.simulated for gpu in gpus) else f"{words}."


def _chosen_words(gpus: Sequence[GpuNowOut], shown: Sequence[GpuNowOut], choice: Choice) -> str:
    words = f"By {choice.sort}{', reversed' if choice.is_reversed else ''}"
    if not choice.words and not choice.only_yours:
        return f"{words}."
    wanted = f' with "{clean(choice.words)}"' if choice.words else ""
    return f"{words}; {len(shown)} of {len(gpus)}{' that you hold' if choice.only_yours else ''}{wanted}."


def _searched(gpu: GpuNowOut, state: str) -> str:
    return f"{gpu.node}/{gpu.index} {gpu.gpu_type} {state} {holder_words(gpu.holder)}".casefold()


def _utilisation(gpu: GpuNowOut) -> str:
    if gpu.utilisation is None:
        return NO_DATA
    full = round(gpu.utilisation * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)} {gpu.utilisation:4.0%}"


def _memory(gpu: GpuNowOut) -> str:
    return "" if gpu.memory_used_bytes is None else memory_figure(gpu.memory_used_bytes, gpu.memory_bytes)


def _errors(gpu: GpuNowOut) -> str:
    words = [f"Xid {gpu.xid}"] if gpu.xid is not None else []
    return ", ".join(words + ([f"{gpu.ecc_uncorrected} ECC"] if gpu.ecc_uncorrected else []))


TOP: "View[GpuNowOut]" = View(
    name=lambda gpu: f"{gpu.node}:{gpu.index}",
    columns=(
        Column("GPU", lambda gpu: f"{gpu.node}/{gpu.index}"),
        Column("TYPE", lambda gpu: gpu.gpu_type),
        Column("UTILISATION", _utilisation),
        Column("MEMORY", _memory, right=True),
        Column("POWER", lambda gpu: "" if gpu.power_w is None else f"{gpu.power_w:.0f} W", right=True),
        Column("TEMP", lambda gpu: "" if gpu.temperature_c is None else f"{gpu.temperature_c} °C", right=True),
        Column("STATE", lambda gpu: gpu.state.value),
        Column("HOLDER", lambda gpu: holder_words(gpu.holder)),
        Column("ERRORS", _errors),
    ),
    empty="No GPU matches.",
)
