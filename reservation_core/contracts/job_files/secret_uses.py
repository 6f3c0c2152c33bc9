"""Secrets of a job, as variables or files."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic.functional_validators import field_validator

from reservation_core.contracts.base import SecretName, Wire
from reservation_core.domain.jobs.variables import fault_of_variable
from reservation_core.domain.sessions.secret_uses import SecretUse, fault_of_path


class JobSecret(Wire):
    """A secret that a job gets: in the variable `env`, or in a file at the absolute `path`."""

    name: SecretName
    env: Annotated[str, Field(strict=True, min_length=1, max_length=128)] | None = None
    path: Annotated[str, Field(strict=True, max_length=1024, pattern=r"^/")] | None = None

    @field_validator("env")
    @classmethod
    def _check_env(cls, value: str | None) -> str | None:
        if value is not None and (fault := fault_of_variable(value)) is not None:
            raise ValueError(fault)
        return value

    @field_validator("path")
    @classmethod
    def _check_path(cls, value: str | None) -> str | None:
        if value is not None and (fault := fault_of_path(value)) is not None:
            raise ValueError(fault)
        return value

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if (self.env is None) == (self.path is None):
            raise ValueError("a secret needs either `env` or `path`")
        return self

    @property
    def use(self) -> SecretUse:
        return SecretUse(self.name, self.env, self.path)


class JobSecretOut(Wire):
    """A secret that a job gets: in the variable `env`, or in a file at `path`."""

    name: str
    env: str | None
    path: str | None
