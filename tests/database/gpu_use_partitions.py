"""Where tests store samples of GPUs of other days than today's."""


def make_partition(table: str) -> str:
    """A statement: make room in `gpu_samples` or `gpu_minutes` for 1 and 2 January 2030. TimescaleDB needs none."""
    return f"""
        DO $$ BEGIN
            IF (SELECT relkind = 'p' FROM pg_class WHERE oid = CAST('{table}' AS regclass)) THEN
                CREATE TABLE {table}_of_test PARTITION OF {table} FOR VALUES FROM ('2030-01-01') TO ('2030-01-03');
            END IF;
        END $$
        """
