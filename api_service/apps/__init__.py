"""Apps of jobs in browsers: each has a host name, and so an origin, of its own."""
