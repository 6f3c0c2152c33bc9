"""What else we do with the API: leases, events, token reviews, certificates, CronJobs."""
