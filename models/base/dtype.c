/* Names and sizes of element types, grown from the one list in the header. */
#include "models/base/dtype.h"

int dtype_B(enum dtype t)
{
    static const int bytes[] = {
#define X(id, name, size) size,
        DTYPE_LIST(X)
#undef X
    };
    return bytes[t];
}

const char *dtype_name(enum dtype t)
{
    static const char *const names[] = {
#define X(id, name, size) name,
        DTYPE_LIST(X)
#undef X
    };
    return names[t];
}
