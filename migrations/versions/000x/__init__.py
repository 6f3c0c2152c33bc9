"""From people, nodes and the ledger to bookings, policy, notifications and maintenance."""
