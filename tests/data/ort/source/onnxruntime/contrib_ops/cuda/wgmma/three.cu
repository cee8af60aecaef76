
#if __CUDA_ARCH__ < 1300 && __CUDA_ARCH__ > 530
#endif