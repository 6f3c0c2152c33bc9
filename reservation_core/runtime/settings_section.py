"""What all sections of the settings have in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Settings that belong together: `GPU_DEV_<SECTION>__<NAME>`.

    A name that is not known is an error: a mistyped one would leave in force what it was to change, and say nothing.
    """

    model_config = ConfigDict(extra="forbid")
