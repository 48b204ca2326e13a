/* The emulated device of tests/device.h: host memory. */
#include "tests/device.h"
#include "tests/simt/simt.h"

void *device_new(const void *from, int64_t bytes)
{
    void *p = aligned_alloc(16, ((size_t)bytes + 31) / 16 * 16);
    ck_assert_ptr_nonnull(p);
    if (from) memcpy(p, from, (size_t)bytes);
    else memset(p, 0xff, (size_t)bytes);
    return p;
}

void device_read(void *to, const void *p, int64_t bytes)
{
    memcpy(to, p, (size_t)bytes);
}

void device_free(void *p)
{
    free(p);
}

int device_orders(void)
{
    return SIMT_ORDERS;
}

void device_order(int i)
{
    simt_order((unsigned)i);
}

const char *device_fault(void)
{
    return simt_fault();
}
