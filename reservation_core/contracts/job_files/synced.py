"""Folders that are sent before a job starts, and that come back after its end."""

from operator import not_
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic.functional_validators import field_validator

from reservation_core.contracts.base import Wire, with_example
from reservation_core.domain.sync.folders import MOST_ENTRIES
from reservation_core.domain.sync.job_sync import MOST_FETCHED, JobSync, fault_of_fetched

Sha256 = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}$")]


class JobSyncAsked(Wire):
    """Files of a job: the folder that it works in begins as `folder`, and of it `fetch` is kept at its end."""

    folder: Annotated[Sha256 | None, Field(description="The id of a folder that you sent. Null: an empty folder.")] = (
        None
    )
    fetch: Annotated[
        list[Annotated[str, Field(strict=True, min_length=1, max_length=1024)]],
        Field(
            max_length=MOST_FETCHED,
            default_factory=list,
            exclude_if=not_,
            description="Paths in the folder that are kept when the command has ended; `.` is all of it.",
        ),
    ]

    @model_validator(mode="after")
    def _check_sense(self) -> Self:
        if self.folder is None and not self.fetch:
            raise ValueError("needs a `folder`, or paths to `fetch`")
        return self

    @field_validator("fetch")
    @classmethod
    def _check_fetch(cls, value: list[str]) -> list[str]:
        if (fault := fault_of_fetched(value)) is not None:
            raise ValueError(fault)
        return value

    @property
    def asked(self) -> JobSync:
        return JobSync(self.folder, tuple(self.fetch))


class JobSyncOut(Wire):
    """Files of a job: the folder that it begins with, and the paths that are kept at its end."""

    folder: str | None
    fetch: list[str]


class FolderSend(Wire):
    """All that is in a folder. Entries are checked one by one by the server (`path`, `kind`, `size`, `chunks`, …)."""

    model_config = with_example(
        entries=[
            {
                "path": "train.py",
                "kind": "file",
                "size": 6,
                "chunks": ["5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"],
            }
        ]
    )

    entries: Annotated[
        list[dict[str, Any]],
        Field(
            max_length=MOST_ENTRIES,
            description="Files (`size`, `chunks` of 4 MiB by SHA-256, `executable`), links (`target`) and folders.",
        ),
    ]


class FolderSent(Wire):
    """A folder, and those of its chunks that are still to be sent. It has an id once none is missing."""

    id: str | None
    entries: int
    size: Annotated[int, Field(description="The bytes of its files.")]
    missing: Annotated[list[str], Field(description="Send these chunks to `PUT /v1/uploads`, then ask again.")]


class ChunksStored(Wire):
    """How many of the chunks that were sent are new."""

    stored: int


class FolderOut(Wire):
    """All that is in a folder of a job. `chunks` is how many different ones follow each other in its data."""

    id: str | None
    entries: list[dict[str, Any]]
    chunks: int
    fetch: Annotated[list[str], Field(default_factory=list)]


class JobFilesOut(FolderOut):
    """What a job begins with, and what it keeps: the paths in `fetch`, and `most_bytes` of them together."""

    most_bytes: int


class ResultsKeep(Wire):
    """The folder that is kept as the results of a job."""

    folder: Sha256
