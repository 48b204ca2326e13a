/* Names and formats of element types, grown from the one list in the header. */
#include "models/base/dtype.h"

const struct dtype_format dtype_formats[DT_COUNT] = {
#define X(id, name, bits, block, scale, peak) { bits, block, scale, DT_##peak },
    DTYPE_LIST(X)
#undef X
};

int dtype_B(enum dtype t)
{
    return (dtype_formats[t].bits + 7) / 8;
}

const char *dtype_name(enum dtype t)
{
    static const char *const names[] = {
#define X(id, name, bits, block, scale, peak) name,
        DTYPE_LIST(X)
#undef X
    };
    return names[t];
}
