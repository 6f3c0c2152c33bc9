"""Simulations over REST."""

from gpu_dev.calls.calls import Calls
from gpu_dev.server.exchange import read_answer
from gpu_dev.wire.simulations import SimulationCreate, SimulationOut

LONGEST_S = 3700.0
"""The longest time in which a server may simulate, and some more."""


class SimulationCalls(Calls):
    """How long jobs would have waited."""

    def simulate(self, request: SimulationCreate) -> SimulationOut:
        """The jobs of the past, or of a trace, as today and changed."""
        answer = self._exchange.send("POST", "/v1/simulations", body=request, silence_s=LONGEST_S)
        return read_answer(SimulationOut, answer.content)
