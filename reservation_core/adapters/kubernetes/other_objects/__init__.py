"""Other objects of the API: leases, Events, token reviews, certificates, CronJobs."""
