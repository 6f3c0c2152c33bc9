"""Types between use cases and the world: rows, errors, and protocols where there is more than one implementation.

A protocol is here if it has two implementations, a double in tests, or a library that use cases must not load.
The database has one implementation: use cases name `adapters.postgres.unit_of_work` itself. See design/0037.
"""
