"""Ways into running jobs: programs, terminals, ports, files and SSH."""
