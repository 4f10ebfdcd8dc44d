"""When checkpoints are taken, what becomes of them, and whether a job that failed is started again."""
