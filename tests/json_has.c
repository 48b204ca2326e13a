/* json_has FILE PATH...: whether the file is one JSON document in which every path leads somewhere. A path is keys with
 * dots between; key[] is the first element of a list, which must not be empty. Null is somewhere. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const json_t *step(const json_t *at, const char *key, size_t n)
{
    char name[128];
    const int list = n > 2 && strncmp(key + n - 2, "[]", 2) == 0;
    snprintf(name, sizeof name, "%.*s", (int)(list ? n - 2 : n), key);
    at = json_object_get(at, name);
    return list ? json_array_get(at, 0) : at;
}

static const json_t *walk(const json_t *at, const char *path)
{
    while (at && *path) {
        const size_t n = strcspn(path, ".");
        at = step(at, path, n);
        path += n + (path[n] == '.');
    }
    return at;
}

int main(int argc, char **argv)
{
    json_error_t why;
    json_t *document = argc > 1 ? json_load_file(argv[1], 0, &why) : NULL;
    int lacks = 0;
    if (!document) {
        fprintf(stderr, "json_has: %s\n", argc > 1 ? why.text : "no file");
        return 1;
    }
    for (int i = 2; i < argc; i++) {
        if (walk(document, argv[i])) continue;
        fprintf(stderr, "json_has: %s leads nowhere\n", argv[i]);
        lacks++;
    }
    json_decref(document);
    return lacks > 0;
}
