"""Made the fixtures in this folder: tiny random checkpoints as transformers writes them, and what PyTorch makes of them
(logits and gradients in float32). Needs torch, transformers and safetensors; `python make.py [NAME ..]` in this folder makes
all, or those. The numbers here were made with transformers 5.24.0 and torch 2.15.0 on the CPU."""
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, DeepseekV3Config, LlamaConfig, MixtralConfig, Qwen3MoeConfig

VOCAB, SEQ = 64, 32
same = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
            tie_word_embeddings=False, rms_norm_eps=1e-5, attention_dropout=0.0)
configs = {
    "llama": LlamaConfig(**same, intermediate_size=24, num_key_value_heads=2, head_dim=6),
    "mixtral": MixtralConfig(**same, intermediate_size=8, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2),
    "qwen3-moe": Qwen3MoeConfig(**same, intermediate_size=24, moe_intermediate_size=8, num_key_value_heads=2, head_dim=6,
                                num_experts=8, num_experts_per_tok=3, norm_topk_prob=True, decoder_sparse_step=1,
                                mlp_only_layers=[]),
    "deepseek-v3": DeepseekV3Config(**same, intermediate_size=24, moe_intermediate_size=8, num_key_value_heads=4, n_routed_experts=8,
                                    num_experts_per_tok=2, n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1,
                                    routed_scaling_factor=2.5, norm_topk_prob=True, q_lora_rank=12, kv_lora_rank=8,
                                    qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=6, rope_theta=1000.0),
}
# rotary scaling: a context of 8 tokens made longer, so that the 32 here reach beyond it
def scaled(rope_type, **keys):
    return dict(rope_type=rope_type, rope_theta=100.0, factor=4.0, original_max_position_embeddings=8, **keys)


def again(name, **keys):
    c = configs[name].to_dict()
    for k in ("rope_parameters", "rope_theta", "architectures", "transformers_version"):
        c.pop(k, None)
    return type(configs[name])(**dict(c, **keys))


configs |= {
    "llama-llama3": again("llama", head_dim=8, rope_parameters=scaled("llama3", low_freq_factor=0.25, high_freq_factor=2.0)),
    "mixtral-linear": again("mixtral", rope_parameters=dict(rope_type="linear", rope_theta=100.0, factor=2.5)),
    "qwen3-moe-yarn": again("qwen3-moe", head_dim=8, rope_parameters=scaled("yarn", beta_fast=2.0, beta_slow=0.25, truncate=False)),
    # 1e-6: what transformers norms the latents with, whatever the configuration says
    "deepseek-v3-yarn": again("deepseek-v3", qk_rope_head_dim=8, head_dim=8, rms_norm_eps=1e-6,
                              rope_parameters=scaled("yarn", beta_fast=1.5, beta_slow=0.5, mscale=1.0, mscale_all_dim=0.8)),
}

for name, config in configs.items():
    if sys.argv[1:] and name not in sys.argv[1:]:
        continue
    torch.manual_seed(1)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for key, p in list(model.named_parameters()) + [(k, b) for k, b in model.named_buffers() if "correction" in k]:
            p.copy_(1 + 0.1 * torch.randn_like(p) if "norm" in key else 0.25 * torch.randn_like(p))
    model = model.to(torch.bfloat16)
    os.makedirs(name, exist_ok=True)
    model.save_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, attn_implementation="eager").train()
    token = torch.randint(0, VOCAB, (SEQ + 4,))
    logits = model(token[None, :SEQ], use_cache=False).logits[0]
    loss = torch.nn.functional.cross_entropy(logits, token[1:SEQ + 1])
    loss.backward()
    grads = {k: p.grad for k, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    # gradients under the names that the checkpoint's file has, by the same way a checkpoint is written
    with torch.no_grad():
        for k, p in model.named_parameters():
            p.copy_(grads[k])
    model.save_pretrained(name + "/truth")
    os.rename(name + "/truth/model.safetensors", name + "/truth/gradient.safetensors")
    save_file({"logits": logits.detach().contiguous(), "loss": loss.detach()[None], "token": token.to(torch.uint8)},
              name + "/truth/logits.safetensors")
    for f in os.listdir(name + "/truth"):
        if f.endswith(".json"):
            os.remove(name + "/truth/" + f)
    for f in os.listdir(name):
        if f.startswith("generation"):
            os.remove(name + "/" + f)
    print(name, float(loss), sum(p.numel() for p in model.parameters()))
