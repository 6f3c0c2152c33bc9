"""A Dockerfile's stages, and carrying out what one of them runs and copies without a container engine."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its name, what it stands on, and its instructions in their order as (word, the rest)."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """The rest of each instruction of one kind."""
        return [rest for found, rest in self.instructions if found == word]

    def copied(self) -> list[tuple[list[str], str]]:
        """The paths copied from the repository: the sources, and where to."""
        words = [instruction.split() for instruction in self.all("COPY") if not instruction.startswith("--from=")]
        return [(word[:-1], word[-1]) for word in words]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """The arguments that stand before all stages, and the stages by name."""

    arguments: dict[str, str]
    stages: dict[str, Stage]

    def line_of(self, name: str) -> list[Stage]:
        """A stage and all that it stands on, itself first."""
        found = [self.stages[name]]
        while found[-1].base in self.stages:
            found.append(self.stages[found[-1].base])
        return found

    def last(self, name: str, word: str) -> str | None:
        """What holds in a stage: its own instruction, else that of what it stands on."""
        return next((stage.all(word)[-1] for stage in self.line_of(name) if stage.all(word)), None)

    def components(self) -> list[str]:
        """The stages that start a program."""
        return [name for name, stage in self.stages.items() if stage.all("ENTRYPOINT")]

    def entry(self, name: str) -> list[str]:
        """What a stage starts, without its default arguments."""
        said = json.loads(self.stages[name].all("ENTRYPOINT")[-1])
        assert isinstance(said, list)
        return said


def read_dockerfile(path: Path) -> Dockerfile:
    """Its stages. Raises AssertionError where one has no name, or something but ARG stands before the first."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for word, rest in _instructions(path.read_text()):
        if word == "FROM":
            base, said_as, name = rest.split()
            assert said_as == "AS", f"a stage without a name: {rest}"
            stage = stages[name] = Stage(name, base)
        elif stage is None:
            assert word == "ARG", f"{word} before the first stage"
            key, _, value = rest.partition("=")
            arguments[key] = value
        else:
            stage.instructions.append((word, rest))
    return Dockerfile(arguments, stages)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#"))
    for line in lines:
        word, _, rest = line.partition(" ")
        yield word, rest.strip()


def copy_of(stage: Stage, repository: Path, into: Path) -> None:
    """Put what a stage copies from the repository where its working folder stands for `into`."""
    for sources, target in stage.copied():
        for source in sources:
            found = repository / source
            if found.is_dir():
                # Neither gets past .dockerignore.
                shutil.copytree(found, into / target, ignore=shutil.ignore_patterns("__pycache__", "built"))
            else:
                shutil.copy(found, into / target / source)


def carry_out(stage: Stage, repository: Path, root: Path, python: str, made: dict[str, Path] | None = None) -> None:
    """Do all that a stage says below `root`: absolute folders of its commands lie there, and `python` is this one.

    `made`: below which folders other stages were carried out, for what is copied from these.
    """
    folder = root
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    for word, rest in stage.instructions:
        if word == "WORKDIR":
            folder = root / rest.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
        elif word == "COPY" and rest.startswith("--from="):
            source_stage, source, target = rest.removeprefix("--from=").split()
            shutil.copytree((made or {})[source_stage] / source.lstrip("/"), folder / target)
        elif word == "COPY":
            copy_of(Stage(stage.name, stage.base, [(word, rest)]), repository, folder)
        elif word == "RUN":
            command = re.sub(r"(?<!\S)/(venv|aws)\b", rf"{root}/\1", rest)
            if command.startswith("python "):
                command = python + command.removeprefix("python")
            subprocess.run(["sh", "-ec", command], cwd=folder, env=variables, check=True, timeout=900)
        else:
            raise AssertionError(f"{word} is not known here")
