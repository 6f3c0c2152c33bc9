"""How many connections to the database a system of a test has, unless it is tried as delivered.

A connection begins with empty caches and plans each statement anew. All 20 that are delivered are opened by the first
looks of a system's loops alone: they were a third of what PostgreSQL did for a test.
"""

FEW = 5
PATIENT_S = 30.0
"""How long a request waits for one of them and for a statement, unless that is tried: machines of tests are slow."""

BESIDE_SILENT_CLUSTERS = 12
"""Pod operations, eight at once, keep theirs while a cluster is silent."""
