"""The second belt: how much later than a reservation's range the cluster ends its pods by itself."""

from datetime import timedelta

BELT = timedelta(seconds=30)
