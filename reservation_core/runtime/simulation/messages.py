"""What the API and its child process write to each other, as JSON."""

from pydantic import TypeAdapter

from reservation_core.domain.simulation.comparison import Comparison, Question

QUESTION = TypeAdapter(Question)
ANSWER = TypeAdapter(Comparison)
