/* The verbs. Each gets the words after its name, prints its answer on stdout and returns what main turns into the
 * exit status: OK 0, ERR_NO and ERR_COMM 1, everything else 2. An empty diag means that the answer itself said it
 * all. */
#ifndef TOOLS_VERB_H
#define TOOLS_VERB_H
#include "models/base/err.h"

struct verb { const char *name; enum err (*run)(int argc, char **argv, struct diag *d); const char *what; };
extern const struct verb verb_all[];
extern const int verb_n;

/* A verb that took a seat in a world says so: main leaves it when all is said. */
struct world;
void verb_world(const struct world *w);

enum err verb_predict(int argc, char **argv, struct diag *d);
enum err verb_search(int argc, char **argv, struct diag *d);
enum err verb_run(int argc, char **argv, struct diag *d);
enum err verb_import(int argc, char **argv, struct diag *d);
enum err verb_export(int argc, char **argv, struct diag *d);
enum err verb_upcycle(int argc, char **argv, struct diag *d);
enum err verb_verify(int argc, char **argv, struct diag *d);
enum err verb_calibrate(int argc, char **argv, struct diag *d);
enum err verb_compare(int argc, char **argv, struct diag *d);
enum err verb_validate(int argc, char **argv, struct diag *d);
enum err verb_draw(int argc, char **argv, struct diag *d);
enum err verb_report(int argc, char **argv, struct diag *d);
enum err verb_list(int argc, char **argv, struct diag *d);
enum err verb_completion(int argc, char **argv, struct diag *d);
enum err verb_man(int argc, char **argv, struct diag *d);
enum err verb_doctor(int argc, char **argv, struct diag *d);

#endif
