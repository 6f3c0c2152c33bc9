"""`policy`, `audit`, `pods`, `up`, `db`, `psql` and `completion`."""
