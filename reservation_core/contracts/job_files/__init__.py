"""Files of jobs over REST."""
