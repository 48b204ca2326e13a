/* Errors. Only the outside world can fail: files, the user, a device. The first function that knows writes the
 * text, once, with both numbers and the way out; callers pass the code on with TRY. Broken invariants are assert. */
#ifndef MODELS_BASE_ERR_H
#define MODELS_BASE_ERR_H

enum err {
    OK = 0,
    ERR_NO,     /* the answer is no: nothing fits, a check failed, a capacity overflowed (exit 1) */
    ERR_CONFIG, /* bad input from the user: file, flag, plan (exit 2)                             */
    ERR_IO,     /* a file cannot be read or written (exit 2)                                      */
    ERR_LIMIT,  /* a size or kind that is not supported (exit 2)                                  */
    ERR_COMM,   /* a rank did not come in time, or a communicator broke (exit 1)                  */
    ERR_DEVICE, /* a GPU, its driver or its libraries failed or are not there (exit 2)            */
};

struct diag { char text[512]; };

/* Writes the text into `d` (cut to its size) and returns `e`, so that `return fail(d, ERR_CONFIG, ...)` reads well. */
enum err fail(struct diag *d, enum err e, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define TRY(call)                                                                                                 \
    do {                                                                                                          \
        const enum err try_e = (call);                                                                            \
        if (try_e != OK) return try_e;                                                                            \
    } while (0)

#define LEN(array) ((int)(sizeof(array) / sizeof((array)[0])))

#endif
