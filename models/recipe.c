/* The recipes, grown from the one list in the header. */
#include "models/recipe.h"
#include <stddef.h>

static const struct recipe recipes[] = {
#define X(id, name, act, x, w, columns, passes, needs, fused, pad, sends) \
    { name, DT_##act, DT_##x, DT_##w, COLUMNS_##columns, passes, needs, fused, pad, sends },
    RECIPE_LIST(X)
#undef X
};

const char *const recipe_names[] = {
#define X(id, name, act, x, w, columns, passes, needs, fused, pad, sends) name,
    RECIPE_LIST(X)
#undef X
    NULL
};

const struct recipe *recipe_of(int32_t precision)
{
    return &recipes[precision];
}
