"""Nouns of GPUs: types, sets of cards on a node, links between cards, placement policies by name."""
