/* bool is_supported(const cudaDeviceProp& old) { return old.major >= 7; } */

bool is_supported(const cudaDeviceProp& card, int heads) {
  bool ampere = card.major == 8;
  return (ampere || (card.major == 9 && card.minor == 0)) && heads > 0;
}
