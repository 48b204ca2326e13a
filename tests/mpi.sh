#!/bin/bash
# `run --comm mpi`: over processes of an MPI job every kind of fold has the losses, weights, moments and counts of bytes of
# ranks as threads, bit for bit; what is wrong is said once, by one process; a job whose rank is killed ends, its newest
# checkpoint is whole, and resumed it ends in the same bits.
# usage: mpi.sh MOEFOLD MPIEXEC
set -u
moefold=$(realpath "$1") mpiexec=$2
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir" || exit 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
die() { echo "mpi.sh: $*"; cat err 2> /dev/null; exit 1; }
job() { local n=$1; shift; "$mpiexec" --oversubscribe -q -n "$n" "$moefold" run "$@" < /dev/null; }
losses() { sed 's/,"lr".*//' "$1/metrics.jsonl"; }                  # and gradient norms, by step; times differ
counts() { grep -E '"(live_peak_B|arena_B|touched_B|host_B|spans|score_gap)"' "$1/run.json"; }
same() {    # of two runs of $1 ranks, at step $2
    cmp -s <(losses one) <(losses two) || die "$3: other losses"
    for ((r = 0; r < $1; r++)); do
        shard=checkpoints/step-0000000$2/rank-0000$r.safetensors
        [ $r -gt 9 ] && shard=checkpoints/step-0000000$2/rank-000$r.safetensors
        cmp -s one/$shard two/$shard || die "$3: rank $r has other weights or moments"
    done
}

folds=0
while read -r ranks flags; do
    rm -rf one two
    args=(--model tiny-moe --ranks "$ranks" --gbs 16 --seq 64 --steps 3 --save-every 3 $flags)
    "$moefold" run "${args[@]}" --out one > /dev/null 2> err || die "$ranks $flags: threads fail"
    job "$ranks" "${args[@]}" --comm mpi --out two > out 2> err || die "$ranks $flags: the job fails"
    same "$ranks" 3 "$ranks $flags"
    cmp -s <(counts one) <(counts two) || die "$ranks $flags: other counts"
    "$moefold" compare two > /dev/null 2> err || die "$ranks $flags: its spans do not join"
    folds=$((folds + 1))
done << 'FOLDS'
2 --tp 2
2 --pp 2 --vpp 2
2 --pp 2 --split-wgrad 1
4 --ep 4
4 --tp 2 --etp 2 --ep 2
4 --tp 4 --ep 4 --recompute full
4 --cp 2 --ep 2 --cp-comm p2p
4 --cp 2 --ep 2 --cp-comm a2a
4 --cp 4
8 --pp 2 --tp 2 --ep 2 --order tp-cp-ep-pp-dp
4 --pp 2 --vpp 2 --ep 2 --ep-overlap 1
4 --ep 4 --dispatcher allgather
4 --fsdp 1 --ep 2
4 --ep 2 --precision bf16 --optimizer sgd
4 --ep 2 --offload layers:1
8 --ep 8 --dispatcher hybridep --domain-gpus 4
8 --tp 2 --cp 2 --pp 2 --ep 4
16 --tp 2 --pp 2 --ep 4
FOLDS

refused() {     # status, processes, a part of the one line, flags
    local status=$1 n=$2 part=$3
    shift 3
    job "$n" --model tiny-moe --gbs 16 --seq 64 --steps 3 --out refused "$@" > out 2> err
    [ $? -eq "$status" ] || die "$*: not exit $status"
    [ "$(grep -c '^moefold: ' err)" -eq 1 ] && grep -q "$part" err || die "$*: not one line with '$part'"
}
refused 2 2 'has 2 processes, the plan 4 ranks' --ranks 4 --comm mpi
refused 2 2 'add --comm mpi' --ranks 2
refused 2 2 'no such flag' --ranks 2 --comm mpi --nonsense 1
refused 2 2 'are not recorded' --ranks 2 --comm mpi --record-load x.yaml
refused 2 2 'forks no other' --ranks 2 --comm mpi --ranks-as process
refused 2 2 'No such file' --ranks 2 --comm mpi --data nowhere.txt
[ -e refused ] && die "a refused job left its directory"
refused 1 2 'no finite number' --ranks 2 --comm mpi --lr 1000000 --clip 0

# A rank that does not come: the others name it and the job ends.
"$mpiexec" --oversubscribe -q -n 3 "$moefold" run --model tiny-moe --ranks 3 --gbs 12 --seq 64 --steps 100000 --comm mpi --timeout 2s \
    --out stuck > out 2> err < /dev/null &
job=$!
for ((k = 0; k < 4000 && $(cat stuck/metrics.jsonl 2> /dev/null | wc -l) < 3; k++)); do sleep 0.005; done
kill -STOP "$(pgrep -P $job | tail -1)"
SECONDS=0
wait $job 2> /dev/null && die "a job whose rank hangs succeeds"
[ $SECONDS -lt 30 ] || die "the job took $SECONDS s to end"
[ "$(grep -c '^moefold: ' err)" -eq 1 ] && grep -q 'rank [0-9] did not come to group' err || die "a rank that hangs is not named"

# A killed rank. mpiexec ends the others.
args=(--model tiny-moe --ranks 4 --ep 4 --gbs 8 --steps 60 --save-every 5)
rm -rf one two
"$moefold" run "${args[@]}" --out one > /dev/null 2> err || die "threads fail"
"$mpiexec" --oversubscribe -q -n 4 "$moefold" run "${args[@]}" --comm mpi --out two > out 2> err &
job=$!
for ((k = 0; k < 4000 && $(cat two/metrics.jsonl 2> /dev/null | wc -l) < 17; k++)); do sleep 0.005; done
kill -9 "$(pgrep -P $job | tail -1)" 2> /dev/null
SECONDS=0
wait $job 2> /dev/null && die "a job whose rank was killed succeeds"
[ $SECONDS -lt 20 ] || die "the job took $SECONDS s to end"
job 4 "${args[@]}" --comm mpi --resume two --out two > out 2> err || die "it cannot be resumed"
cmp -s <(tail -1 one/metrics.jsonl | sed 's/,"lr".*//') <(tail -1 two/metrics.jsonl | sed 's/,"lr".*//') || die "resumed it has another loss"
cmp -s one/checkpoints/step-00000060/rank-00003.safetensors two/checkpoints/step-00000060/rank-00003.safetensors ||
    die "resumed it has other weights"
echo "$folds folds over MPI as over threads; a killed job resumed to the same bits"
