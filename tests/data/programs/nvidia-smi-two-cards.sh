case "$1" in
  *uuid*) echo "0, GPU-aaaa, NVIDIA GeForce RTX 4090"; echo "1, GPU-bbbb, Quadro M2200" ;;
  *compute_cap*) echo "0, 8.9"; echo "1, 5.2" ;;
  *memory*) echo "0, 24564"; echo "1, 4096" ;;
  *driver*) echo "0, 570.133.07"; echo "1, 570.133.07" ;;
esac
