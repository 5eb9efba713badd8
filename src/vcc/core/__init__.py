"""The method: pure functions over frozen values. Imports torch and nothing else."""
