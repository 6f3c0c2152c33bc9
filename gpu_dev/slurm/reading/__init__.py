"""What the words and scripts of Slurm's commands mean here: pure, from texts to requests and remarks."""
