"""What goes between use cases and the world: records, errors, and protocols where there is more than one way.

A protocol stands here for what has two implementations, a double in tests, or a library that use cases must not load.
The database has one implementation: use cases name `adapters.postgres.unit_of_work` itself. See design/0037.
"""
