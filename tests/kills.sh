#!/bin/bash
# A rank's process killed at a random moment of a training run, COUNT times: the run ends within 10 s with exit 1 and one line
# that names the rank, its newest checkpoint is whole, and resumed it ends with the bits of a run that nobody disturbed.
# usage: kills.sh MOEFOLD [COUNT [SEED]]
set -u
moefold=$(realpath "$1") count=${2:-10} RANDOM=${3:-1}
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir" || exit 2
die() { echo "kills.sh: kill $i: $*"; cat err 2>/dev/null; exit 1; }
steps=30
train=("$moefold" run --model tiny-moe --ranks 4 --ep 4 --gbs 8 --steps $steps --save-every 2)
# Losses and gradient norms by step; times differ.
losses() { sed 's/,"lr".*//' "$1/metrics.jsonl"; }

i=0
"${train[@]}" --ranks-as process --out whole > /dev/null 2> err || die "the undisturbed run failed"
resumed=0
for ((i = 1; i <= count; i++)); do
    rm -rf run
    "${train[@]}" --ranks-as process --out run > out 2> err &
    run=$!
    n=$((RANDOM % 24))                      # a moment after the n-th step's line
    for ((k = 0; k < 400; k++)); do
        [ "$(cat run/metrics.jsonl 2>/dev/null | wc -l)" -ge $n ] && ranks=$(pgrep -P $run) && break
        sleep 0.005
    done
    victims=($ranks)
    [ ${#victims[@]} -gt 0 ] || die "it has no processes"
    kill -9 "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null || { wait $run; continue; }   # between two pieces of the run
    SECONDS=0
    wait $run 2> /dev/null; status=$?
    if [ $status -eq 0 ]; then              # the rank had done its part of a piece: nobody missed it
        cmp -s <(losses run) <(losses whole) || die "nobody missed the rank, and losses differ"
        continue
    fi
    [ $status -eq 1 ] || die "exit $status, not 1"
    [ $SECONDS -lt 10 ] || die "the others took $SECONDS s"
    [ "$(wc -l < err)" -eq 1 ] && grep -q '^moefold: rank [0-3] died (process [0-9]*): Killed' err || die "its line is not the one expected"
    ls -d run/checkpoints/*.part > /dev/null 2>&1 && die "half a checkpoint was left"
    [ -d run/checkpoints ] && [ -n "$(ls run/checkpoints)" ] || continue        # killed before the first
    "${train[@]}" --ranks-as thread --resume run --out run > out 2> err || die "it cannot be resumed"
    cmp -s <(losses run) <(losses whole) || die "the resumed run has other losses"
    cmp -s run/checkpoints/step-000000$steps/rank-00000.safetensors whole/checkpoints/step-000000$steps/rank-00000.safetensors ||
        die "the resumed run has other weights"
    resumed=$((resumed + 1))
done
[ $resumed -gt $((count / 5)) ] || die "only $resumed of $count runs were killed and resumed"
echo "$count runs, $resumed of them killed after a checkpoint and resumed to the same bits"
