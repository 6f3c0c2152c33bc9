"""PGMQ, on the transaction of the unit of work."""
