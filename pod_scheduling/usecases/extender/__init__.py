"""The scheduler extender: filter, score, bind."""
