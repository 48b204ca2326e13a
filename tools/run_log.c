#include "tools/run_log.h"
#include "exec/lr.h"
#include "models/base/whole_file.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The step that a line speaks of, or that an evaluation follows. */
static int64_t line_step(const char *line)
{
    const char *step = strstr(line, "\"step\":"), *after = strstr(line, "\"after_steps\":");
    return after ? strtoll(after + 14, NULL, 10) - 1 : step ? strtoll(step + 7, NULL, 10) : INT64_MAX;
}

static enum err keep_lines(const char *path, int64_t first, struct diag *d)
{
    FILE *old = first > 0 ? fopen(path, "rb") : NULL;
    struct whole_file w;
    char *line = NULL;
    size_t room = 0;
    enum err e = whole_file_open(&w, path, d);
    if (e == OK) {
        for (ssize_t n; old && (n = getline(&line, &room, old)) > 0;)
            if (line[n - 1] == '\n' && line_step(line) < first) fputs(line, w.f);
        e = whole_file_commit(&w, d);
    }
    free(line);
    if (old) fclose(old);
    return e;
}

enum err run_log_open(struct run_log *l, struct arena *a, const char *dir, const struct job *j, int64_t first,
                      int64_t steps, struct diag *d)
{
    const struct plan *p = &j->plan;
    *l = (struct run_log){ .path = arena_printf(a, "%s/metrics.jsonl", dir), .job = j, .steps = steps,
                           .progress = isatty(STDERR_FILENO) };
    l->flop = (double)p->gbs * p->seq * model_flop_per_token(&j->model, plan_context(p), p->vocab_padded);
    TRY(keep_lines(l->path, first, d));
    l->f = fopen(l->path, "ab");
    return l->f ? OK : fail(d, ERR_IO, "%.300s: cannot be written: %s", l->path, strerror(errno));
}

/* JSON has no NaN. */
static void put_number(FILE *f, const char *key, double x)
{
    if (isfinite(x)) fprintf(f, ",\"%s\":%.9g", key, x);
    else fprintf(f, ",\"%s\":null", key);
}

static void end_line(struct run_log *l)
{
    fputs("}\n", l->f);
    if (fflush(l->f) != 0) l->lost = 1;
}

static void show(const struct run_log *l, int64_t step, const struct exec_step *s, double tokens_per_s)
{
    const double left_s = l->spent_s / (double)l->done * (double)(l->steps - step - 1);
    fprintf(stderr, "\rstep %lld of %lld, loss %.4f, %.0f tokens/s, %.4f TFLOPS, %d:%02d:%02d left %s",
            (long long)step + 1, (long long)l->steps, s->loss, tokens_per_s,
            l->flop / s->step_s / l->job->plan.gpus / 1e12, (int)(left_s / 3600), (int)fmod(left_s / 60, 60),
            (int)fmod(left_s, 60), step + 1 == l->steps ? "\n" : "");
}

void run_log_step(void *user, int64_t step, const struct exec_step *s)
{
    struct run_log *l = user;
    const struct plan *p = &l->job->plan;
    const double tokens_per_s = (double)p->gbs * p->seq / s->step_s;
    l->spent_s += s->step_s;
    l->done++;
    fprintf(l->f, "{\"step\":%lld", (long long)step);
    put_number(l->f, "loss", s->loss);
    put_number(l->f, "mtp_loss", s->mtp_loss);
    put_number(l->f, "balance_loss", s->balance_loss);
    put_number(l->f, "grad_norm", s->grad_norm);
    put_number(l->f, "lr", lr_at(p, step));
    put_number(l->f, "step_s", s->step_s);
    put_number(l->f, "tokens_per_s", tokens_per_s);
    put_number(l->f, "tflops", l->flop / s->step_s / p->gpus / 1e12);
    end_line(l);
    if (l->progress) show(l, step, s, tokens_per_s);
}

void run_log_eval(void *user, const struct train_eval *e)
{
    struct run_log *l = user;
    fprintf(l->f, "{\"after_steps\":%lld,\"tokens\":%lld", (long long)e->step, (long long)e->tokens);
    put_number(l->f, "eval_loss", e->loss);
    put_number(l->f, "eval_mtp_loss", e->mtp_loss);
    put_number(l->f, "eval_bits_per_token", e->loss / log(2));
    end_line(l);
    if (l->progress)
        fprintf(stderr, "%safter %lld steps: evaluation loss %.4f, %.4f bits a token\n",
                e->step < l->steps ? "\n" : "", (long long)e->step, e->loss, e->loss / log(2));
}

enum err run_log_close(struct run_log *l, struct diag *d)
{
    if (!l->f) return OK;
    const int lost = fclose(l->f) != 0 || l->lost;
    l->f = NULL;
    return lost ? fail(d, ERR_IO,
                       "%.300s: lines of it could not be written: the disk is full, or it went away", l->path)
                : OK;
}
