/* The one writer of error texts. */
#include "models/base/err.h"
#include <stdarg.h>
#include <stdio.h>

enum err fail(struct diag *d, enum err e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(d->text, sizeof(d->text), format, args);
    va_end(args);
    return e;
}
