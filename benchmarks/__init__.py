"""How fast it is: ratios against a peer or a limit in the same run, several rounds each, median and spread."""
