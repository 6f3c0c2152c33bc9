"""A trace of jobs through the planner in virtual time: how long they would have waited."""
