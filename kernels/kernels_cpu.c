/* The table of one instruction set: compiled, as every *_cpu.c, under names of its own (CMakeLists.txt). */
#include "kernels/kernels.h"

extern const struct kernels kernels_cpu;
const struct kernels kernels_cpu = {
    .name = KERNELS_ISA,
#define X(k) .k = k##_cpu,
    KERNELS_LIST(X)
#undef X
};
