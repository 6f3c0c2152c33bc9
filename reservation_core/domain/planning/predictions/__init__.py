"""Predictions of when waiting jobs start, learnt from how long jobs really run and how long they really waited."""
