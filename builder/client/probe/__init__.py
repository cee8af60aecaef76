"""How the machine is asked: NVML, libcuda, nvidia-smi, the kernel's files, each in a process of its own."""
