#include <cudnn_frontend.h>
