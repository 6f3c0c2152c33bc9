"""The base of all sections of the settings."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400 * 400)]


class Section(BaseModel):
    """A section of settings, `GPU_DEV_<SECTION>__<NAME>`. Unknown names are errors, as a typo would have no effect."""

    model_config = ConfigDict(extra="forbid")


def split(value: object) -> object:
    """Split a list in an environment variable: `1800,900,300`, with or without brackets."""
    return (
        [word for part in value.strip(" []").split(",") if (word := part.strip(" \"'"))]
        if isinstance(value, str)
        else value
    )
