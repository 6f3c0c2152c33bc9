"""One module a page: its addresses, and what its forms do."""
