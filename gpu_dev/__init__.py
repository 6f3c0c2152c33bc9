"""The command line `gpu-dev` and its typed client. Talks HTTP only; knows the wire and the words, nothing else."""
