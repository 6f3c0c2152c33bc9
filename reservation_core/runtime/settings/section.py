"""What all sections of the settings have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400 * 400)]


class Section(BaseModel):
    """Settings that belong together: `GPU_DEV_<SECTION>__<NAME>`.

    A name that is not known is an error: a mistyped one would leave in force what it was to change, and say nothing.
    """

    model_config = ConfigDict(extra="forbid")


def split(value: object) -> object:
    """A list as people write it in an environment variable: `1800,900,300`, with or without brackets."""
    return (
        [word for part in value.strip(" []").split(",") if (word := part.strip(" \"'"))]
        if isinstance(value, str)
        else value
    )
