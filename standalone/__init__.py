"""The whole system in one process, with an embedded PostgreSQL and the local cluster: `python -m standalone`."""
