"""`sbatch`, `srun`, `squeue`, `scancel` and `sinfo`, on top of the client: what Slurm's options mean here."""
