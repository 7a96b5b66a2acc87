"""Commands about configuration files and nothing else."""
