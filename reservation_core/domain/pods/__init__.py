"""What a pod says: our own jobs' environment, and others' pods as the ledger and the cluster see them."""
