"""A way to an API server, as tests of our own jobs have it."""

from tests.integration.reservation_core.adapters.kubernetes.conftest import transport

__all__ = ["transport"]
