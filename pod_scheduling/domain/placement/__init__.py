"""Placement policies: the node and the cards for whole cards, gangs and shares."""
