"""Which node and which cards: for whole cards, gangs and shares of cards."""
