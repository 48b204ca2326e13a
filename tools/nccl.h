/* What NCCL and its tests know of a machine, laid over a system that has the rest: the XML of NCCL_TOPO_DUMP_FILE
 * (NCCL src/graph/xml.cc) and what nccl-tests prints (nccl-tests src/common.cu). Every figure that is changed is
 * told. */
#ifndef TOOLS_NCCL_H
#define TOOLS_NCCL_H
#include "models/system.h"

enum { NCCL_SAID = 16 };
struct nccl_said { const char *text[NCCL_SAID]; int n; };       /* a line for each figure that was read */

/* GPUs of the host, NVLink by its links and the generation of the GPU, NICs, the link to the host. ERR_CONFIG as
 * "NAME:LINE:COLUMN: ..": not XML, no GPU, figures that no machine has. */
enum err nccl_topo(struct system *s, struct nccl_said *said, struct arena *a, const char *name, const char *text,
                   size_t text_B, struct diag *d);
/* Efficiencies of the links of `s`, from the largest size of one collective: inside a domain, or over whole hosts
 * that are domains; the call's cost from the smallest. The collective is named in the output, or by the file.
 * ERR_CONFIG as "NAME:LINE: ..". */
enum err nccl_tests(struct system *s, struct nccl_said *said, struct arena *a, const char *name, const char *text,
                    struct diag *d);

#endif
