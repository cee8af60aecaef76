"""Probes of the machine: NVML, libcuda and nvidia-smi in child processes, and the kernel's files."""
