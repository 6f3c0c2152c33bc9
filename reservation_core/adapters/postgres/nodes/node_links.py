"""The links between GPUs of nodes, from PostgreSQL."""

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.cards.link_words import Links, read_links


async def node_links(connection: AsyncConnection) -> dict[str, Links]:
    """The known links by node name."""
    rows = await connection.execute(statement("node_links"))
    return {name: read_links(row.gpu_links) for row in rows for name in row.names}
