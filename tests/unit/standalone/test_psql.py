"""How a database URL reaches psql."""

from standalone.psql import connection_variables


def test_a_socket_folder_and_a_server_with_a_password() -> None:
    assert connection_variables("postgresql+asyncpg://gpu_dev@/gpu_dev?host=/a%20b/run") == {
        "PGHOST": "/a b/run",
        "PGUSER": "gpu_dev",
        "PGDATABASE": "gpu_dev",
    }
    assert connection_variables("postgresql+asyncpg://u:p%40ss@db.example:5433/x?ssl=require") == {
        "PGHOST": "db.example",
        "PGPORT": "5433",
        "PGUSER": "u",
        "PGPASSWORD": "p@ss",
        "PGDATABASE": "x",
        "PGSSLMODE": "require",
    }
