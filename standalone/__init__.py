"""The whole system in one process, with a PostgreSQL of its own and the local cluster: `python -m standalone`."""
