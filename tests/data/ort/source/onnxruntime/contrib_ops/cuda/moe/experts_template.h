void dispatch() {
  if (sm_ >= 70 && sm_ < 75) {
    gemm<T, cutlass::arch::Sm70>(x);
  } else if (sm_ >= 75 && sm_ < 90) {
    gemm<T, cutlass::arch::Sm75>(x);
  } else {
    ORT_THROW("not here");
  }
}
