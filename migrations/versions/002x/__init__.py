"""The ledger's clock, long histories, partitions, the audit log's chain, and scopes of tokens."""
