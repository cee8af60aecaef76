#include "contrib_ops/cuda/moe/experts_template.h"
