"""`run`, `submit`, `list`, `explain`, `logs` and the like."""
