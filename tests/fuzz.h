/* What fuzz targets share: the entry point's declaration, and what must hold of any answer. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H
#include "models/base/err.h"
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B);

/* A refusal has a text, on one line. */
static inline void fuzz_answer(enum err e, const struct diag *d)
{
    if (e != OK && (*d->text == '\0' || strchr(d->text, '\n') != NULL)) abort();
}

#endif
