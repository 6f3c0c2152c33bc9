"""Batch scripts: the shell that runs one, its `#SBATCH` lines, and the command that a job runs it by."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpu_dev.slurm.reading.options import Option
from gpu_dev.slurm.reading.words import Remark, Words, read_words

LONGEST_SCRIPT = 32_000
"""Characters; a word of a job's command has at most 32,768."""

_MARK = "#SBATCH"
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_SHEBANG = re.compile(r"#!\s*(\S+)\s*(.*)")
_VARIABLE = re.compile(r"\$\{?(SLURM_[A-Z0-9_]+)(?!\w*:?[-=+?])")
_ASSIGNED = re.compile(r"\b(SLURM_[A-Z0-9_]+)=")
_STEP = re.compile(r"(?:^|[;&|({]|\b(do|then|else|exec|time))\s*(?:\w+=\S*\s+)*srun(?!\S)\s*(\S*)")
VARIABLES = {
    "SLURM_JOB_ID": "$GPU_DEV_JOB_ID",
    "SLURM_JOBID": "$GPU_DEV_JOB_ID",
    "SLURM_ARRAY_JOB_ID": "${GPU_DEV_JOB_ID%.*}",
    "SLURM_ARRAY_TASK_ID": "${GPU_DEV_ARRAY_INDEX-}",
    "SLURM_ARRAY_TASK_COUNT": "${GPU_DEV_ARRAY_SIZE-}",
    "SLURM_ARRAY_TASK_MIN": "${GPU_DEV_ARRAY_SIZE:+0}",
    "SLURM_ARRAY_TASK_MAX": "${GPU_DEV_ARRAY_SIZE:+$((GPU_DEV_ARRAY_SIZE-1))}",
    "SLURM_ARRAY_TASK_STEP": "${GPU_DEV_ARRAY_SIZE:+1}",
    "SLURM_JOB_NUM_NODES": "${NNODES:-1}",
    "SLURM_NNODES": "${NNODES:-1}",
    "SLURM_NTASKS": "${NNODES:-1}",
    "SLURM_NODEID": "${NODE_RANK:-0}",
    "SLURM_PROCID": "${NODE_RANK:-0}",
    "SLURM_LOCALID": "0",
}
"""Variables of Slurm that scripts find, as a shell has them here. They are not exported: programs that find them would
take the job for one of Slurm's."""
SUBMITTED = ("SLURM_JOB_NAME", "SLURM_SUBMIT_DIR", "SLURM_GPUS_ON_NODE")
"""Those whose values are known when the job is submitted."""
CPUS = "SLURM_CPUS_PER_TASK"
"""Is set where the job asks for a number of CPUs, as in Slurm."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script that can be run: the words that start its shell, and its lines."""

    shell: tuple[str, ...]
    lines: tuple[str, ...]

    def command(self, words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        """The command of a job that runs the script with these words; `variables` are for `SUBMITTED`."""
        # The script runs on each node, as a step of one task a node does.
        values = ['srun() { "$@"; };'] if any(map(_STEP.search, self.lines)) else []
        values += [f"{name}={value}" for name, value in VARIABLES.items()]
        values += [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        # In place of the first line, so that the shell counts the lines as the script does.
        text = "\n".join([" ".join(values), *self.lines[1:]])
        return [*self.shell, "-c", text, "slurm_script", *words]


def wrapped(command: str) -> Script:
    """The script that `--wrap` stands for."""
    return Script(("/bin/sh",), ("#!/bin/sh", *command.split("\n")))


def read_script(text: str) -> Script | Remark:
    """A script, or why it is none that can be run."""
    lines = tuple(text.split("\n"))
    shebang = _SHEBANG.match(lines[0])
    if shebang is None:
        return Remark(1, "#!", "A batch script begins with #! and a shell, such as #!/bin/bash.")
    if "\r\n" in text:
        return Remark(1, "line breaks", "The script has line breaks of DOS. Convert it with dos2unix.")
    if "\0" in text:
        return Remark(text[: text.index("\0")].count("\n") + 1, "\\0", "A script has no null characters.")
    program, rest = shebang[1], shebang[2].split()
    words = [program, *rest]
    name = rest[0] if program.endswith("/env") and rest else program.rpartition("/")[2]
    if name not in _SHELLS:
        return Remark(1, lines[0], f"Only shells can run a script here ({', '.join(sorted(_SHELLS))}). Use --wrap.")
    if len(text) > LONGEST_SCRIPT:
        size = f"{len(text):,} characters"
        return Remark(None, size, f"A script has at most {LONGEST_SCRIPT:,}. Move its parts into files that it calls.")
    return Script(tuple(words), lines)


def read_directives(script: Script, table: Mapping[str, Option]) -> Words:
    """The options of `#SBATCH` lines before the first command, in their order."""
    read = Words()
    for number, line in _directives(script.lines):
        lexer = shlex.shlex(line.removeprefix(_MARK), posix=True, punctuation_chars=False)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:
            read.refusals.append(Remark(number, line, "A quotation mark is not closed."))
            continue
        found = read_words(words, table, number)
        read.given += found.given
        read.refusals += found.refusals
        if found.operands:
            read.refusals.append(Remark(number, found.operands[0], "An option begins with - here."))
    return read


def _directives(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        if line.startswith(_MARK):
            yield number, line
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def late_directives(script: Script) -> Iterator[Remark]:
    """`#SBATCH` lines that nobody reads, because commands stand before them."""
    read = {number for number, _ in _directives(script.lines)}
    for number, line in enumerate(script.lines, 1):
        if line.startswith(_MARK) and number not in read:
            yield Remark(number, line, "It comes after the first command, so it is not read, as in Slurm.")


def faults_of(script: Script, *, cpus: bool = False) -> Iterator[Remark]:
    """Lines that would not do in a job what they do in Slurm. `cpus`: the job asks for a number of them."""
    known = VARIABLES.keys() | {*SUBMITTED, *([CPUS] if cpus else [])} | {*_ASSIGNED.findall("\n".join(script.lines))}
    for number, line in enumerate(script.lines, 1):
        if line.lstrip().startswith("#"):
            continue
        for before, command in _STEP.findall(line):
            if before == "exec" or not command or command.startswith(("-", "\\")):
                yield Remark(number, "srun", "In a script it takes no options: it runs the command on each node.")
        for name in dict.fromkeys(_VARIABLE.findall(line)):
            if name not in known:
                yield Remark(number, name, f"It is not set here. Set it above, or write ${{{name}:-VALUE}}.")
