"""The bases of all settings and of their sections."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource

from reservation_core.domain.request_terms import MOST_MEMORY, read_bytes


def _read_size(value: object) -> object:
    read = read_bytes(value) if isinstance(value, str) else value
    if read is None:
        raise ValueError("must be a number of bytes, or one such as 64Gi")
    return read


def split(value: object) -> object:
    """Split a list in an environment variable: `1800,900,300`, with or without brackets."""
    return (
        [word for part in value.strip(" []").split(",") if (word := part.strip(" \"'"))]
        if isinstance(value, str)
        else value
    )


MemorySize = Annotated[int, BeforeValidator(_read_size), Field(ge=2**20, le=MOST_MEMORY)]
Seconds = Annotated[float, Field(gt=0, le=86_400 * 400)]
WarningTimes = Annotated[
    tuple[Annotated[int, Field(gt=0, le=86_400 * 400)], ...], NoDecode, BeforeValidator(split), Field(max_length=20)
]


class Section(BaseModel):
    """A section of settings, `GPU_DEV_<SECTION>__<NAME>`. Unknown names are errors, as a typo would have no effect."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class EnvironmentSettings(BaseSettings):
    """Settings from the environment and from a folder of secrets."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library names it
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave out `.env` files, which no program names: looking for each name in none costs 3 ms a start."""
        return init_settings, env_settings, file_secret_settings
