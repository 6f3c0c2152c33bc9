"""How the cards of nodes are joined, from PostgreSQL."""

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.cards.link_words import Links, read_links


async def node_links(connection: AsyncConnection) -> dict[str, Links]:
    """By name, for the nodes of which it is known."""
    found = await connection.execute(statement("node_links"))
    return {name: read_links(row.gpu_links) for row in found for name in row.names}
