"""The links between a node's GPUs, from the annotation by the node agent or an administrator."""

from collections.abc import Mapping
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping
from reservation_core.adapters.kubernetes.nodes.node_gpus import BadAnnotationError
from reservation_core.adapters.kubernetes.pods.marks import NODE_LINKS
from reservation_core.domain.cards.link_words import BadLinksError, Links, read_links


def annotated_links(node: Mapping[str, Any], cards: int) -> Links | None:
    """The links between the GPUs of a Node object; None without the annotation.

    `cards`: the largest GPU index plus one; the annotation must cover all. Raises BadAnnotationError.
    """
    text = as_mapping(as_mapping(node.get("metadata")).get("annotations")).get(NODE_LINKS)
    if text is None:
        return None
    if not isinstance(text, str):
        raise BadAnnotationError("it is no text")
    try:
        links = read_links(text)
    except BadLinksError as problem:
        raise BadAnnotationError(str(problem)) from problem
    if len(links) < cards:
        raise BadAnnotationError(f"it describes {len(links)} GPUs, but the node has {cards}")
    return links
