#!/bin/bash
# deepseek-v3 on 256 GPUs of gb200-nvl72, as moefold planned it for stack mcore-2510. Data, tokenizer, iterations, schedule of
# the learning rate and checkpoints are yours: they are handed on. In the directory of Megatron-LM:
#   NODE_RANK=.. MASTER_ADDR=.. bash THIS --data-path .. --tokenizer-type .. --train-iters ..
set -eu
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=64
export USE_MNNVL=1
torchrun --nproc-per-node 4 --nnodes 64 --node-rank "${NODE_RANK:-0}" \
    --master-addr "${MASTER_ADDR:-localhost}" --master-port "${MASTER_PORT:-29500}" pretrain_gpt.py \
    --num-layers 61 \
    --hidden-size 7168 \
    --ffn-hidden-size 18432 \
    --num-attention-heads 128 \
    --multi-latent-attention \
    --q-lora-rank 1536 \
    --kv-lora-rank 512 \
    --qk-head-dim 128 \
    --qk-pos-emb-head-dim 64 \
    --v-head-dim 128 \
    --num-experts 256 \
    --moe-ffn-hidden-size 2048 \
    --moe-layer-freq '([0]*3+[1]*58)' \
    --moe-shared-expert-intermediate-size 2048 \
    --moe-router-topk 8 \
    --moe-router-score-function sigmoid \
    --moe-router-enable-expert-bias \
    --moe-router-num-groups 8 \
    --moe-router-group-topk 4 \
    --moe-router-topk-scaling-factor 2.5 \
    --disable-bias-linear \
    --swiglu \
    --normalization RMSNorm \
    --norm-epsilon 1e-06 \
    --position-embedding-type rope \
    --rotary-base 10000 \
    --untie-embeddings-and-output-weights \
    --tensor-model-parallel-size 1 \
    --context-parallel-size 1 \
    --pipeline-model-parallel-size 4 \
    --expert-tensor-parallel-size 1 \
    --expert-model-parallel-size 64 \
    --microbatch-group-size-per-virtual-pipeline-stage 4 \
    --micro-batch-size 1 \
    --global-batch-size 8192 \
    --seq-length 4096 \
    --lr 0.001 \
    --weight-decay 0.1 \
    --adam-beta1 0.9 \
    --adam-beta2 0.95 \
    --adam-eps 1e-08 \
    --clip-grad 1 \
    --seed 1234 \
    --bf16 \
    --fp8-format e4m3 \
    --fp8-recipe mxfp8 \
    --optimizer adam \
    --accumulate-allreduce-grads-in-fp32 \
    --moe-token-dispatcher-type flex \
    --moe-flex-dispatcher-backend hybridep \
    --pipeline-model-parallel-layout 'Et*4|(tttt|)*14tmL' \
    --mtp-num-layers 1 \
    --recompute-granularity selective \
    --recompute-modules moe_act mla_up_proj \
    --vocab-size 129280 \
    --make-vocab-size-divisible-by 128 \
    --use-mcore-models \
    --transformer-impl transformer_engine \
    --use-distributed-optimizer \
    --overlap-grad-reduce \
    --overlap-param-gather \
    --cross-entropy-loss-fusion \
    --cross-entropy-fusion-impl te \
    --no-create-attention-mask-in-dataloader \
    --attention-dropout 0 \
    --hidden-dropout 0 \
    --manual-gc \
    --manual-gc-interval 10 \
    --max-position-embeddings 4096 \
    --init-method-std 0.006 \
    --moe-grouped-gemm \
    --moe-permute-fusion \
    --moe-router-dtype fp32 \
    --moe-router-load-balancing-type seq_aux_loss \
    --moe-aux-loss-coeff 1e-4 \
    --mtp-loss-scaling-factor 0.1 \
    "$@"
