#!/bin/bash
# Holds the tree to its layers: who may include whom, unique stems, CUDA headers only where they belong, output and exit
# only in tools. Usage: layers.sh TREE. Prints every offence as FILE:LINE; then plants one offence of each kind in a small
# tree of its own and fails if one goes unseen.
set -u -o pipefail
export LC_ALL=C

# Files of a room (a folder without its subfolders), relative to the tree.
files() { find "$1" -maxdepth 1 -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort; }

# FILE:LINE:TEXT of every line, comments and the inside of strings blanked out.
code() {
    [ $# -eq 0 ] || awk '
        FNR == 1 { inside = 0 }
        { out = ""; s = $0
          while (s != "") {
              if (inside) { i = index(s, "*/"); if (!i) break; s = substr(s, i + 2); inside = 0; continue }
              if (!match(s, /"|\/\*|\/\/|\047/)) { out = out s; break }
              out = out substr(s, 1, RSTART - 1); c = substr(s, RSTART, RLENGTH); s = substr(s, RSTART + RLENGTH)
              if (c == "//") break
              if (c == "/*") { inside = 1; continue }
              while (s != "" && substr(s, 1, 1) != c) s = substr(s, substr(s, 1, 1) == "\\" ? 3 : 2)
              out = out c c; s = substr(s, 2)
          }
          print FILENAME ":" FNR ":" out }' "$@"
}

# room, what it may include with quotes
includes() {
    local list
    list=$(files "$1")
    [ -n "$list" ] || return 0
    grep -nHE '^ *# *include *"' $list | grep -vE ":[0-9]+: *# *include *\"($2)/[a-z0-9_]+\.(h|cuh)\"" |
        sed "s;\$;    ($1 may include only: $2);"
}

# A stem ends before _ref, _cpu, _cuda; one folder owns it.
stems() {
    for room in models/base models sim kernels exec tools; do
        files $room | sed -E 's|.*/||; s/\.[a-z]+$//; s/_(ref|cpu|cuda)(_.*)?$//' | sort -u | sed "s|\$| $room|"
    done | sort | awk '{ if ($1 == last) print $2 "/" $1 ": the stem " $1 " is also in " room; last = $1; room = $2 }'
}

cuda_headers() {
    for room in models/base models sim kernels exec tools tests; do files $room; done |
        grep -vE '^(kernels/.*\.cuh?|exec/.*_cuda\.c|exec/comm_(nccl|local)\.c)$' |
        xargs -r grep -nHE '^ *# *include *[<"](cuda|cublas|cudnn|nccl|nvml|nvToolsExt|cooperative_groups)' |
        sed 's/$/    (CUDA and NCCL headers: only kernels\/*.cu, exec\/*_cuda.c, exec\/comm_nccl.c, exec\/comm_local.c)/'
}

# Output to the user, exit and the environment belong to tools.
output() {
    code $(for room in models/base models sim kernels exec; do files $room; done) |
        grep -E '(^|[^A-Za-z0-9_])((exit|printf|vprintf|puts|putchar|getenv|secure_getenv) *\(|stdout([^A-Za-z0-9_]|$))' |
        sed 's/$/    (only tools print, exit or read the environment)/'
}

check() (
    cd "$1" || exit 2
    found=$(
        includes models/base 'models/base'
        includes models      'models/base|models'
        includes sim         'sim|models/base|models'
        includes kernels     'kernels|models/base'
        includes exec        'exec|kernels|models/base|models'
        includes tools       'tools|sim|exec|kernels|models/base|models'
        includes tests       'tests|tests/simt|tools|tools/fit|sim|exec|kernels|models/base|models'
        stems
        cuda_headers
        output
    )
    [ -z "$found" ] || { printf '%s\n' "$found"; exit 1; }
)

# Plants `text` in `file` beside a sound one; it must be seen (no) or not (yes).
plant() {
    local want=$1 file=$2 text=$3 tree
    tree=$(mktemp -d)
    mkdir -p "$tree"/{models/base,sim,kernels,exec,tools,tests}
    printf '#include "models/base/err.h"\n' > "$tree/models/plan.c"
    printf '%s\n' "$text" > "$tree/$file"
    if check "$tree" > "$tree/out"; then got=yes; else got=no; fi
    rm -rf "$tree"
    [ $got = "$want" ] || { echo "layers.sh: planted '$text' in $file: allowed $got, wanted $want"; return 1; }
}

self_test() {
    local bad=0
    while IFS='|' read -r want file text; do
        plant "$want" "$file" "$text" || bad=1
    done <<'END'
no|models/base/err.c|#include "models/plan.h"
no|models/cfg.c|#include "sim/cost.h"
no|models/cfg.c|#include "exec/comm.h"
no|models/cfg.c|#include "kernels/gemm.h"
no|models/cfg.c|#include "cfg.h"
no|models/cfg.c|#include "models/../sim/cost.h"
no|sim/cost.c|#include "exec/comm.h"
no|sim/cost.c|#include "kernels/gemm.h"
no|kernels/gemm_ref.c|#include "models/op.h"
no|kernels/gemm.cu|#include "exec/comm.h"
no|exec/exec.c|  #  include "sim/sim.h"
no|exec/exec.c|#include "tools/args.h"
no|tools/args.c|#include "tests/test.h"
no|sim/plan.c|int x;
no|kernels/plan_ref.c|int x;
no|exec/exec.c|#include <cuda_runtime.h>
no|exec/comm_shm.c|#include <nccl.h>
no|models/cfg.c|    if (x) exit(2);
no|sim/cost.c|    printf("hello");
no|exec/exec.c|    fprintf(stdout, "hello");
no|models/cfg.c|    /* a */ puts("b"); /* c */
no|models/cfg.c|    f('"', getenv("HOME"));
yes|exec/exec.c|#include "kernels/gemm.h"
yes|exec/comm_nccl.c|#include <nccl.h>
yes|kernels/gemm.cu|#include <cuda_runtime.h>
yes|sim/cost.c|/* printf("no"); exit(1) */ int x; // puts("no")
yes|sim/cost.c|    snprintf(s, n, "exit(1) printf(stdout)");
yes|exec/backend_cpu.c|    _exit(1);
yes|tools/args.c|    printf("hello"); exit(0);
yes|tests/test_cost.c|    printf("hello"); exit(0);
END
    return $bad
}

[ $# -eq 1 ] && [ -d "$1" ] || { echo "usage: layers.sh TREE"; exit 2; }
check "$1" && self_test
