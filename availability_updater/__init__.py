"""The availability updater: reads nodes and GPUs from the cluster into the database. One run, then it ends."""
