"""One module a page: what is at an address of the pages, and what its forms do."""
