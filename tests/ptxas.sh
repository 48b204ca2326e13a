#!/bin/bash
# Holds what ptxas said of every kernel to limits: nothing is spilled to local memory, no kernel has a stack, and static
# shared memory stays under 48 KiB; registers are bounded by what each kernel's launch bounds make ptxas do, and by 255.
# Usage: ptxas.sh FOLDER [table]: FOLDER/*.ptxas are the reports; with `table` prints one line a kernel and architecture.
set -u -o pipefail
[ $# -ge 1 ] && ls "$1"/*.ptxas >/dev/null 2>&1 || { echo "usage: ptxas.sh FOLDER [table], FOLDER with *.ptxas"; exit 2; }

# file, architecture, kernel, registers, spilled bytes, stack bytes, static shared bytes
rows() {
    awk '
        FNR == 1 { file = FILENAME; sub(/.*\//, "", file); sub(/\.ptxas$/, "", file) }
        /Compiling entry function/ { split($0, q, "\047"); kernel = q[2]; arch = q[4]; inside = 1 }
        / bytes stack frame/ && inside { stack = $1; spill = $5 + $9 }
        /Used [0-9]+ registers/ && inside {
            shared = 0
            for (i = 1; i <= NF; i++) {
                if ($i == "Used") registers = $(i + 1)
                if ($i == "smem" || $i == "smem,") shared = $(i - 2)
            }
            for (i = 2; i <= NF; i++) if ($i ~ /^smem/) shared = $(i - 2)
            print file, arch, kernel, registers, spill, stack, shared
            inside = 0
        }' "$1"/*.ptxas
}

judge() {
    awk '$5 > 0 { print $1 ".cu, " $2 ", " $3 ": " $5 " bytes spilled" }
         $6 > 0 { print $1 ".cu, " $2 ", " $3 ": a stack of " $6 " bytes" }
         $7 > 49152 { print $1 ".cu, " $2 ", " $3 ": " $7 " bytes of static shared memory" }
         { seen[$2]++ }
         END { if (!seen["sm_90a"] || !seen["sm_100a"]) print "no kernel for sm_90a, or none for sm_100a" }'
}

if [ "${2:-}" = table ]; then
    rows "$1" | sort | column -t
    exit 0
fi
found=$(rows "$1" | judge)
[ -z "$found" ] || { printf '%s\n' "$found"; exit 1; }
# A planted spill must be seen.
planted=$(printf 'x sm_90a k 10 8 0 0\nx sm_100a k 10 0 0 0\n' | judge)
[ "$planted" = "x.cu, sm_90a, k: 8 bytes spilled" ] || { echo "ptxas.sh: a planted spill was not seen: '$planted'"; exit 1; }
echo "$(rows "$1" | wc -l) kernels, no spill"
