#!/bin/bash
# The command line's contract: exit codes, one JSON document on stdout and nothing else there, one line on stderr that
# begins "moefold: " for every refusal. Usage: test_cli.sh MOEFOLD JSON_CHECK, the program and one that reads JSON.
set -u
moefold=$(realpath "$1") json_check=$(realpath "$2") hf=$(dirname "$(realpath "$0")")/data/hf
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
failed=0

bad() { echo "FAILED: $*"; failed=$((failed + 1)); }

# expect STATUS ARGS...: exit status; stderr empty on 0, and on 2 exactly one line that begins with the program's name.
expect() {
    local want=$1 got
    shift
    "$moefold" "$@" >out 2>err </dev/null
    got=$?
    [ $got = "$want" ] || bad "moefold $*: exit $got instead of $want: $(head -c 300 err)"
    [ "$want" != 0 ] || [ ! -s err ] || bad "moefold $*: exit 0, but said $(head -c 300 err)"
    if [ "$want" = 2 ]; then
        [ "$(wc -l <err)" = 1 ] && grep -q '^moefold: ' err || bad "moefold $*: not one line: $(head -c 300 err)"
        [ ! -s out ] || bad "moefold $*: refused, and yet wrote to stdout"
    fi
    ! grep -qiE '(^|[^a-z])(nan|inf)([^a-z]|$)' out || bad "moefold $*: a number is not finite"
}

# says TEXT: the last refusal's line holds it.
says() { grep -qF -- "$1" err || bad "the message lacks '$1': $(head -c 300 err)"; }

# answers STATUS KEYS ARGS...: with --json stdout is one document that has all the keys (a.b.c, [] for the first element).
answers() {
    local want=$1 keys=$2
    shift 2
    expect "$want" "$@" --json
    "$json_check" out $keys || bad "moefold $*: not the document of the contract"
}

# ---- no verb, unknown verbs, help ----
"$moefold" >out 2>err; [ $? = 2 ] || bad "moefold alone: not exit 2"
expect 2 frobnicate;                            says "frobnicate"
for verb in predict search run import export upcycle verify calibrate compare validate draw report list doctor completion man; do
    expect 0 $verb --help
    grep -q -- '--json' out || bad "moefold $verb --help does not name --json"
done
expect 0 predict --help
for key in --tp --ep --etp --vpp-group --capacity --domain-gpus; do
    grep -q -- "$key " out || bad "predict --help does not name $key"
done

# ---- list, doctor ----
expect 0 list
answers 0 "models[].name models[].params_total systems[].memory_gib stacks[].runs plans[].gpus" list
expect 2 list frogs;                            says "frogs"
answers 0 "checks[].what checks[].found" doctor

# ---- flags ----
tiny="--model tiny-moe --system host --gpus 4"
expect 2 predict $tiny --tpp 2;                 says "--tpp"; says "did you mean --tp?"
expect 2 predict $tiny --ep;                    says "--ep"
expect 2 predict $tiny --ep three;              says "--ep"
expect 2 predict $tiny --ep 3;                  says "3"; says "4"
expect 2 predict $tiny --ep=;                   says "--ep"
expect 2 predict $tiny --tokens much;           says "--tokens"
expect 2 predict $tiny --price -4;              says "--price"
expect 2 predict $tiny --vary ep;               says "--vary"
expect 2 predict $tiny --vary load=;            says "--vary"
expect 2 predict $tiny --vary order=1..2;       says "--vary"
expect 2 predict --model tiny-mo --system host; says "tiny-moe"
expect 2 predict no-such-plan;                  says "no-such-plan"
expect 2 predict a b;                           says "b"
expect 2 search $tiny --fix tp;                 says "--fix"
expect 2 search $tiny --fix tpp=2;              says "tp"
expect 2 draw frogs tiny-moe-8 -o f.svg;        says "frogs"
expect 2 draw groups tiny-moe-8 -o f.png;       says ".svg"
expect 2 draw groups tiny-moe-8 --group frogs -o f.dot; says "frogs"
expect 2 draw program tiny-moe-8 --stage 7 -o f.dot;    says "--stage"
expect 2 run tiny-moe-8 --backend cuda;         says "--backend"
expect 2 run tiny-moe-8 --data nowhere.txt;     says "nowhere.txt"
expect 2 compare;                               says "DIR"
expect 2 compare nowhere;                       says "nowhere"

# ---- files: place, both numbers ----
printf 'model: tiny-moe\nsystem: host\ngpus: 4\nepp: 2\n' >bad.yaml
expect 2 predict ./bad.yaml;                    says "bad.yaml:4:"; says "epp"
printf 'model: tiny-moe\nsystem: host\ngpus: 4\nep: 2\nep: 2\n' >twice.yaml
expect 2 predict ./twice.yaml;                  says "twice.yaml:5"
printf '{"model": "tiny-moe", "system": "host", "gpus": 4, "ep": 2}' >good.json
expect 0 predict good.json
printf '\357\273\277model: tiny-moe\r\nsystem: host\r\n' >marked.yaml
expect 0 predict marked.yaml
head -c 3000 /dev/urandom >noise.yaml
expect 2 predict noise.yaml

# ---- predict ----
keys="plan.dp plan.layout feasible reason step_s tokens_per_s_gpu tflops_gpu mfu peak_tflops_dense.dtype peak_tflops_dense.value
flop_per_token params.total params.active params.mtp memory.worst_rank memory.worst_stage memory.peak_B memory.peak_gib
memory.capacity_gib memory.by_stage[].stage memory.by_stage[].params_gib memory.by_stage[].grads_gib
memory.by_stage[].optimizer_gib memory.by_stage[].activations_gib memory.by_stage[].buffers_gib memory.by_stage[].overhead_gib
memory.by_stage[].peak_gib host.peak_gib host.capacity_gib time.compute_s time.exposed.tp time.exposed.cp time.exposed.ep
time.exposed.dp time.exposed.pp time.offload_s time.bubble_s time.host_s time.optimizer_s time.unaccounted_s comm[].group
comm[].op comm[].bytes_per_rank comm[].total_s comm[].exposed_s comm[].link placement[].group placement[].straddles cost range.low_s range.high_s
curve"
answers 0 "$keys" predict tiny-moe-8
expect 0 predict tiny-moe-8
expect 0 predict tiny-moe-8 --tp=1 --ep=8 --pp 1
answers 0 "cost.days cost.gpu_hours cost.usd" predict tiny-moe-8 --tokens 1e9 --price 2
answers 0 "curve[].value curve[].feasible curve[].step_s" predict tiny-moe-8 --vary ep=1..8
answers 0 "curve[].value curve[].feasible curve[].step_s load.imbalance load.busiest_rank load.lost_s" predict tiny-moe-8 --vary load=balanced,drop:zipf:1
answers 0 "step_s" predict tiny-moe-8 --trace step.json && "$json_check" step.json "traceEvents" || bad "the Chrome trace is no JSON"
small="--model deepseek-v3 --system h100-sxm --gpus 64 --ep 64 --seq 4096 --gbs 1024"
answers 1 "$keys" predict $small
expect 1 predict $small
grep -q "at least 142 GPUs" out || bad "no lower bound on GPUs"
answers 1 "advice.changes[].change advice.changes[].saves_gib advice.changes[].flags advice.least_gpus advice.tried" predict $small
change=$(sed -n 's/.*"flags": "\(.*\)".*/\1/p' out | head -1)
expect 0 predict $small $change                 # what is said to fit does
grep -q '"change": "moments bf16"' out && bad "a plan that fits is given advice"
answers 0 "curve[].value curve[].days curve[].usd curve[].tokens_per_s" predict tiny-moe-8 --vary "gpu.memory=1 GiB..4 GiB" --price 2
[ "$(grep -c '"value": ' out)" = 4 ] || bad "1 to 4 GiB by doubling are not three values"
answers 0 "sensitivity[].key sensitivity[].gain sensitivity[].gain_per_unit sensitivity[].feasible" predict deepseek-v3-256-gb200 --sensitivity
grep -q '"gain": -' out && bad "a better machine is slower"
grep -q '"gain": 0.0[0-9]*[1-9]' out || bad "no better machine is faster"
answers 0 "counsel[].about counsel[].says counsel[].flags" predict deepseek-v3-256-gb200
answers 0 "counsel[].flags" search --model tiny-moe --system h100-sxm --gpus 12 --seq 64 --gbs 64 --top 1
answers 0 "cost.billed_usd cost.idle_usd" predict deepseek-v3-256-gb200 --tokens 1e12 --price 4
answers 0 "contention.step_s contention.longer contention.groups[].group contention.groups[].alone_s contention.groups[].shared_s" predict deepseek-v3-1024-h100 --contention dynamic
answers 0 "plans[].contention_step_s" search --model tiny-moe --system h100-sxm --gpus 8 --seq 64 --gbs 64 --top 2 --contention dynamic
expect 2 predict tiny-moe-8 --contention some;   says "--contention"
# What a run's tokens chose, and a prediction under it.
expect 0 run tiny-moe-8 --steps 2 --out recorded --record-load tokens.yaml
grep -q '^  - \[[0-9, ]*\]$' tokens.yaml || bad "no layer was recorded"
answers 0 "load.imbalance load.busiest_rank load.lost_s" predict tiny-moe-8 --load recorded:tokens.yaml
expect 2 predict deepseek-v3-256-gb200 --load recorded:tokens.yaml;   says "counts 8 experts, model deepseek-v3 has 256"
expect 2 predict tiny-moe-8 --load recorded:nowhere.yaml;   says "nowhere.yaml"
expect 2 run tiny-moe-8 --steps 1000000 --record-load tokens.yaml;   says "fewer --steps"
# What tokens chose on eight ranks, taken again on one: the same losses, though the run comes in pieces; other files are refused.
losses() { sed -n 's/.*"loss": \([0-9]\.[0-9]\{4\}\).*/\1/p' out; }
answers 0 "steps[].loss" run tiny-moe-8 --steps 4 --eval-split 0.1 --eval-every 2 --out eight --record-routes routes
losses >eight.losses
answers 0 "steps[].loss" run tiny-moe-1 --steps 4 --eval-split 0.1 --eval-every 2 --out one --replay-routes routes
losses | cmp -s - eight.losses || bad "one rank does not repeat the losses of eight"
[ -s eight.losses ] || bad "no losses"
head -c 1000 routes >cut
expect 2 run tiny-moe-8 --steps 4 --replay-routes cut;   says "has 1000 bytes, its head says 32816"
cp routes damaged; printf 'x' | dd of=damaged bs=1 seek=500 conv=notrunc 2>/dev/null
expect 2 run tiny-moe-8 --steps 4 --replay-routes damaged;   says "checksum"
expect 2 run tiny-moe-8 --steps 4 --replay-routes tokens.yaml;   says "no recorded routing"
expect 2 run tiny-moe-8 --steps 5 --replay-routes routes;   says "holds steps 0 to 3, this run takes 0 to 4"
expect 2 run tiny-moe-8 --steps 4 --seq 32 --replay-routes routes;   says "has seq 64, this run 32"
expect 2 run tiny-moe-8 --steps 4 --replay-routes routes --record-routes again;   says "give either"
expect 0 run tiny-moe-8 --steps 2 --load drop:cf0.5:position --out dropped
# Host memory is told apart from the device's (G05): 8 workers of 4 ranks; what fits on the GPU still does.
answers 1 "host.peak_gib reason advice.changes[].flags" predict deepseek-v3-256-gb200 --data-workers 64
grep -q '"reason": "the host of gb200-nvl72, not the GPU:.* 256 on a host' out || bad "host memory is not told apart"
[ "$(sed -n 's/.*"flags": "\(.*\)".*/\1/p' out | head -1)" = "--data-workers 32" ] || bad "fewer data workers are no advice"
answers 0 "host.peak_gib" predict deepseek-v3-256-gb200 --data-workers 8
grep -q '"peak_gib": 32.0' out || bad "8 data workers of 4 GiB are not 32 GiB"
expect 2 predict tiny-moe-8 --vary gpu.memory=1..4;   says "--vary"
expect 2 predict tiny-moe-8 --vary nvlink.domain=1..4; says "nvlink.domain"
expect 2 predict tiny-moe-8 --vary lr=0..4;           says "0"
expect 2 predict tiny-moe-8 --vary ep=8..2;           says "8"
expect 2 predict tiny-moe-8 --trace nowhere/step.json; says "nowhere"

# ---- search ----
answers 0 "plans[].plan.tp plans[].step_s plans[].tflops_gpu plans[].tokens_per_s_gpu plans[].peak_gib space.grids space.gbs_valid
space.with_mbs space.with_layout space.plans grids.valid grids.opened grids.bounded_out rejected priced fits simulated proven gap
total_s" search $tiny --top 3 --fix cp=1 -o best.yaml
expect 0 predict ./best.yaml
thirty="--model qwen3-30b-a3b --system h100-sxm --seq 4096 --gbs 512 --fix order=tp-cp-ep-dp-pp --fix mbs=1"
answers 0 "plans[].plan.gpus by_gpus[].gpus by_gpus[].days by_gpus[].usd_per_gtoken objective" search $thirty --gpus 16 --objective gpus -o few.yaml
grep -q "^gpus: 8$" few.yaml || bad "the fewest GPUs for Qwen3-30B-A3B are not 8"
expect 0 predict ./few.yaml
expect 0 search $thirty --gpus 16 --objective cost
expect 1 search $thirty --gpus 4 --objective gpus;      says "7 GPUs"
expect 2 search $thirty --gpus 16 --objective fun;      says "throughput"
expect 2 search $tiny --fix cp=1 -o nowhere/best.yaml; says "nowhere"
expect 2 search $tiny --fix cp=1 -o .;                 says "irectory"
expect 1 search --model deepseek-v3 --system h100-sxm --gpus 64 --seq 4096 --gbs 1024 --fix tp=1 --fix cp=1

# ---- run, compare ----
answers 0 "steps[].step steps[].loss steps[].grad_norm steps[].step_s steps[].tokens_per_s steps[].tflops trace live_peak_B arena_B" \
    run tiny-moe-8 --steps 3 --out here
for f in plan.yaml trace.mft metrics.jsonl run.json; do [ -s here/$f ] || bad "run did not write $f"; done
[ "$(wc -l <here/metrics.jsonl)" = 3 ] || bad "metrics.jsonl does not have a line a step"
[ -z "$(ls here | grep '\.part$')" ] || bad "run left half-written files"
"$moefold" run tiny-moe-8 --steps 1 --record-load /dev/full >out 2>err
[ $? = 2 ] && grep -q "largest arena" out || bad "a run whose load cannot be saved does not say what it did"
says "No space left"
(ulimit -f 1 && exec "$moefold" run tiny-moe-8 --steps 1 --out limited >/dev/null 2>err)
[ $? = 2 ] || bad "a limit on the size of files is not an error like others: $(head -c 300 err)"
says "File too large"
answers 0 "step.predicted_s step.predicted_at_load_s step.measured_s tflops.predicted tflops.measured memory.predicted_live_B
memory.measured_live_B memory.predicted_arena_B memory.arena_B ops[].kind ops[].count ops[].predicted_s ops[].measured_s
spans.joined unaccounted_s" compare here
expect 0 compare here
expect 0 compare here --system host
expect 0 draw timeline here -o timeline.svg
[ "$(grep -c '>rank 0 measured</text>' timeline.svg)" = 1 ] || bad "draw timeline lacks a lane"
[ "$(grep -c '<title>rank' timeline.svg)" -gt 100 ] || bad "draw timeline lacks spans"
expect 2 draw timeline here --tp 2 -o t.svg;    says "--tp: timeline draws what was run"
expect 2 draw timeline -o timeline.svg;         says "directory"
expect 2 draw timeline nowhere -o timeline.svg; says "nowhere"
expect 2 calibrate -o nowhere/host.yaml;        says "nowhere"
answers 0 "backend worst equal ops[].op ops[].launches ops[].off ops[].limit ops[].equal" verify tiny-moe-8 --steps 1
expect 2 verify --stack mcore-2510 --model tiny-moe;    says "moefold"
expect 0 run --model tiny-moe --ranks 2 --ep 2 --steps 1 --out there
cp here/trace.mft there/trace.mft
expect 2 compare there;                         says "program"
head -c 100 here/trace.mft >there/trace.mft
expect 2 compare there;                         says "trace.mft"
expect 2 run --stack mcore-2510 --model tiny-moe --steps 1; says "moefold"
expect 2 run tiny-moe-8 --steps 1 --out good.json;      says "good.json"
expect 2 run tiny-moe-8 --steps 1 --data .;             says "plain file"
answers 0 "evals[].loss" run tiny-moe-8 --steps 5 --save-every 2 --eval-split 0.1 --eval-every 3 --lr-decay wsd --out saved
[ "$(ls saved/checkpoints | tr '\n' ' ')" = "step-00000004 step-00000005 " ] || bad "run left other checkpoints than the newest two"
[ "$(grep -c after_steps saved/metrics.jsonl)" = 2 ] || bad "metrics.jsonl lacks an evaluation"
answers 0 "steps[].loss" run --resume saved --steps 6 --ranks 2 --tp 1 --pp 1 --ep 2 --out saved
expect 0 compare saved
[ "$(grep -c '"step"' saved/metrics.jsonl)" = 6 ] || bad "a resumed run does not go on in metrics.jsonl"
expect 2 run --resume saved --steps 5;                 says "ask for more"
expect 2 run --resume saved --steps 9 --model tiny-moe --topk 3; says "--topk"
expect 2 run --resume here --steps 9;                  says "no checkpoint"
head -c 20000 saved/checkpoints/step-00000005/rank-00001.safetensors >cut && cp cut saved/checkpoints/step-00000005/rank-00001.safetensors
expect 2 run --resume saved --steps 9;                 says "rank-00001.safetensors"; says "cut short"
expect 2 run tiny-moe-8 --steps 1 --data ../data.bin --eval-split 2; says "--eval-split"
answers 1 "steps[].step" run tiny-moe-1 --steps 6 --optimizer sgd --clip 0 --lr 1e6 --out wild; says "lower lr"

# ---- import, export ----
yes 0123456789 | head -c 4000 | tr 0-9 "\001-\012" >ascii.txt
answers 0 "checkpoint" import $hf/mixtral --out taken
answers 0 "steps[].loss" run --resume taken --steps 2 --seq 16 --gbs 4 --ranks 2 --ep 2 --save-every 2 --capacity worst --out trained --data ascii.txt
answers 0 "out" export trained --out given
[ "$(wc -c <given/model.safetensors)" = "$(wc -c <$hf/mixtral/model.safetensors)" ] || bad "export is not as large as what was imported"
answers 0 "out" export taken --out same
cmp -s same/model.safetensors $hf/mixtral/model.safetensors || bad "export of an import is not the same file"
answers 0 "checkpoint" import $hf/llama --out dense
answers 0 "parent checkpoint" upcycle dense --experts 4 --topk 2 --granularity 2 --out wide
answers 0 "steps[].loss" run --resume wide --steps 2 --seq 16 --gbs 4 --ranks 2 --ep 2 --capacity worst --data ascii.txt --out wider
expect 2 upcycle dense --granularity 5;                says "ffn = 24"
expect 2 upcycle dense --experts 4 --topk 3 --granularity 2; says "--topk 3"
expect 2 upcycle wide;                                 says "already"
expect 0 run tiny-moe-1 --steps 1 --save-every 1 --out odd
expect 2 export odd;                                   says "could not read it"
answers 0 "out" export wide --out widened
grep -q MixtralForCausalLM widened/config.json || bad "export of an upcycled Llama is no Mixtral"
expect 2 import here;                                  says "safetensors"
expect 2 import nowhere;                               says "nowhere"
answers 0 "model total active" import $hf/mixtral/config.json
answers 0 "args env" export --to megatron --model qwen3-30b-a3b --system h100-sxm --gpus 16 --ep 8 --seq 4096 --gbs 64
expect 0 export --to megatron --model qwen3-30b-a3b --system h100-sxm --gpus 16 --ep 8 --seq 4096 --gbs 64 -o launch.sh
expect 0 import launch.sh --from megatron --system h100-sxm -o back.yaml
answers 0 "plan" predict back.yaml
expect 2 import launch.sh --from megatron;             says "system is missing"
answers 0 "plan" import launch.sh --from megatron --system h100-sxm
grep -q '"notes": \[\]' out || bad "what we exported needs notes"
sed 's/--use-distributed-optimizer//' launch.sh > whole.sh
answers 0 "plan notes[]" import whole.sh --from megatron --system h100-sxm
grep -q '# no --use-distributed-optimizer' out || bad "whole optimizer states are taken for shards, silently"
# A refused input harms no file that was there.
echo keep > kept; head -c 300 launch.sh > cut.sh; printf 'tokens: [1' > cut.yaml; printf '<system><cpu' > cut.xml
for ask in "import cut.sh --from megatron --system h100-sxm" "import cut.yaml --from bridge --system h100-sxm" \
    "import cut.xml --from nccl-topo --system h100-sxm" "import cut.xml --from nccl-tests --system h100-sxm" \
    "import cut.yaml" "export --to megatron cut.yaml" "report cut.yaml" "draw pipeline cut.yaml" \
    "search --model cut.yaml --system h100-sxm --gpus 8 --gbs 8 --seq 64"; do
    cp kept kept.html; cp kept kept.svg; out=kept.yaml
    case $ask in report*) out=kept.html;; draw*) out=kept.svg;; *) cp kept kept.yaml;; esac
    expect 2 $ask -o $out
    cmp -s kept $out || bad "a refused input harmed $out"
done
expect 1 export --to megatron --stack moefold --model tiny-moe --system h100-sxm --gpus 2 --seq 64 --gbs 4; says "our own executor"
expect 2 export here --to hf --tp 2;                   says "--tp"

# ---- validate ----
cat >runs.csv <<'EOF'
id,source,model,system,gpus,precision,seq_len,gbs,tp,recompute,use,tokens_per_s_gpu,peak_mem_gib
a,nemo-99,qwen3-30b-a3b,h100-sxm,16,bf16,4096,64,1,none,score,10000,60
b,nemo-99,qwen3-30b-a3b,h100-sxm,16,bf16,4096,64,1,full,score,8000,
c,nobody,qwen9,h100-sxm,16,bf16,4096,64,1,none,score,1,
EOF
answers 0 "rows predicted skipped[].id skipped[].reason error.median error.mean error.p90 error.max memory_error.median
by_source.nemo-99 by_system.h100-sxm ab.pairs ab.right ab.within_1_5 coverage80 cross_validated.mean runs[].low runs[].high runs[].id runs[].unit runs[].measured
runs[].predicted runs[].error runs[].low runs[].high runs[].measured_mem_gib runs[].predicted_mem_gib" validate runs.csv
grep -q '"predicted": 2' out || bad "validate did not predict two rows"
expect 0 validate runs.csv
expect 2 validate;                              says "RUNS.csv"
expect 2 validate nowhere.csv;                  says "nowhere.csv"
sed 's/,8000,/,fast,/' runs.csv >bad.csv
expect 2 validate bad.csv;                      says "bad.csv:3:"; says "fast"
sed 's/^b,/a,/' runs.csv >bad.csv
expect 2 validate bad.csv;                      says "bad.csv:3:1"; says "twice"
expect 2 validate runs.csv --rules ./bad.yaml;  says "bad.yaml"
answers 0 "by.none.rows by.full.median" validate runs.csv --by recompute
expect 2 validate runs.csv --by colour;         says "colour"

# ---- systems from NCCL ----
nccl=$(dirname "$hf")/nccl
answers 0 "system from" import $nccl/h100.xml --from nccl-topo --system h100-sxm -o topo.yaml
expect 0 import $nccl/all_reduce_8.txt --from nccl-tests --system ./topo.yaml -o measured.yaml
expect 0 predict --model qwen3-30b-a3b --system ./measured.yaml --gpus 16 --ep 8 --seq 4096 --gbs 64 --fsdp 1
expect 2 import $nccl/h100.xml --from nccl-topo;                        says "--system"
expect 2 import $nccl/h100.xml --from nccl-tests --system h100-sxm;     says "h100.xml"
expect 2 import $nccl/all_reduce_8.txt --from nccl-topo --system h100-sxm; says "txt:1:"

# ---- completion, man ----
expect 0 completion bash
cp out moefold.bash
words() { bash -c 'source ./moefold.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _moefold; echo "${COMPREPLY[@]}"' - "$@"; }
[ "$(words moefold predict --sched)" = --schedule ] || bad "completion does not know --schedule"
[ "$(words moefold predict --schedule int)" = interleaved ] || bad "completion does not know a schedule"
[ "$(words moefold val)" = validate ] || bad "completion does not know validate"
[ "$(words moefold search --system gb300)" = gb300-nvl72 ] || bad "completion does not know a system"
expect 0 completion zsh
expect 2 completion fish;                       says "fish"
expect 0 man
for part in '^.TH MOEFOLD 1' '^.SS predict' '^.SS import' 'sensitivity' 'vpp'; do grep -q -- "$part" out || bad "man lacks $part"; done

# ---- draw ----
for what in groups program pipeline memory topology sensitivity; do
    expect 0 draw $what tiny-moe-8 -o $what.svg
    grep -q '<svg' $what.svg || bad "draw $what wrote no SVG"
done
[ "$(grep -c '<text x="8".*>stage ' memory.svg)" = 2 ] || bad "draw memory lacks a stage"
grep -q 'rank 7, stage 1' topology.svg || bad "draw topology lacks a rank"
expect 0 report tiny-moe-8 --tokens 1e9 --vary ep=1..8 -o page.html
for part in '^<!doctype html>' '<svg' 'class="card yes"' 'Memory of one GPU, by stage' 'A better\|a tenth better' '</html>$'; do
    grep -q "$part" page.html || bad "the page lacks $part"
done
[ "$(grep -c '<svg' page.html)" = 5 ] || bad "the page has not five pictures"
grep -qE '(src|href)=|<script|@import|url\(' page.html && bad "the page needs something else"
answers 0 "written feasible" report $small -o page.html
grep -q 'does not fit' page.html && grep -q 'at least 142 GPUs' page.html || bad "the page does not say that nothing fits"
expect 2 report tiny-moe-8 -o page.pdf;         says ".html"
expect 2 report tiny-moe-8 -o nowhere/page.html; says "nowhere"
expect 0 draw groups deepseek-v3-256-gb200 --group dp -o groups.dot
grep -q 'NVLink domain 3' groups.dot || bad "draw groups lacks a domain"

expect 2 draw groups tiny-moe-8 -o nowhere/groups.svg;  says "nowhere"
expect 2 draw pipeline tiny-moe-8 -o nowhere/p.svg;     says "nowhere"
PATH=/nowhere "$moefold" draw groups tiny-moe-8 -o groups.svg 2>err; [ $? = 2 ] || bad "draw without dot: not exit 2"
says "install graphviz"

# ---- what is no plain file is written where it is ----
for args in "predict tiny-moe-1 --trace" "draw groups tiny-moe-1 -o" "draw pipeline tiny-moe-1 -o" "search $tiny --fix cp=1 -o"; do
    : >real.svg
    ln -sf real.svg link.svg
    expect 0 $args link.svg
    [ -L link.svg ] && [ -s real.svg ] || bad "moefold $args: put a file in a link's place"
    mkfifo pipe.svg
    timeout 20 cat pipe.svg >piped & expect 0 $args pipe.svg
    wait
    [ -p pipe.svg ] && [ -s piped ] || bad "moefold $args: put a file in a pipe's place"
    rm pipe.svg
done

# Without a GPU the script that checks one says so.
if ! nvidia-smi -L >/dev/null 2>&1; then
    bash "$(dirname "$0")/../tools/gpu_check" >said 2>&1
    [ $? = 2 ] && [ "$(wc -l <said)" = 1 ] && grep -q "no GPU here" said || bad "gpu_check without a GPU: $(cat said)"
fi

[ $failed = 0 ] && echo "all as the contract says"
exit $failed
