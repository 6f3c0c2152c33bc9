"""A circuit breaker. Times are seconds of a monotonic clock."""


class Circuit:
    """Closed until `failures` in a row; then open: one request every `pause_s`, until one is answered."""

    def __init__(self, failures: int = 3, pause_s: float = 1.0) -> None:
        self._most = failures
        self._pause_s = pause_s
        self._failures = 0
        self._next_s = 0.0

    @property
    def open(self) -> bool:
        """Whether requests are held back."""
        return self._failures >= self._most

    def may_ask(self, at_s: float) -> bool:
        """Whether to ask now. While open, it says yes once per pause, and that caller has to ask."""
        if not self.open:
            return True
        if at_s < self._next_s:
            return False
        self._next_s = at_s + self._pause_s
        return True

    def answered(self) -> None:
        self._failures = 0

    def failed(self, at_s: float) -> None:
        self._failures = min(self._failures + 1, self._most)
        self._next_s = at_s + self._pause_s
