"""Stand-ins for a GPU and its driver: what can be learnt of a CUDA provider without either."""
