#if __CUDA_ARCH__ >= 530
#endif
