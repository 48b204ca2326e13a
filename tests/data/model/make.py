"""Writes the configurations beside it. Needs transformers 5.24 (no PyTorch)."""
import json, os, sys
from transformers import (DeepseekV2Config, DeepseekV3Config, GptOssConfig, LlamaConfig, MixtralConfig, Qwen2MoeConfig,
                          Qwen3MoeConfig)

HERE = os.path.dirname(os.path.abspath(__file__))
rope = lambda theta: {"rope_type": "default", "rope_theta": theta}
mla = dict(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
MODELS = {
    "deepseek-v3": (DeepseekV3Config, dict(rope_parameters=rope(10000.0), topk_method="noaux_tc", scoring_func="sigmoid",
                    moe_layer_freq=1, num_nextn_predict_layers=1)),
    "kimi-k2": (DeepseekV3Config, dict(vocab_size=163840, num_attention_heads=64, num_key_value_heads=64, first_k_dense_replace=1,
                n_routed_experts=384, n_group=1, topk_group=1, routed_scaling_factor=2.827, rope_parameters=rope(50000.0),
                topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1, num_nextn_predict_layers=0)),
    "deepseek-v2": (DeepseekV2Config, dict(hidden_size=5120, intermediate_size=12288, moe_intermediate_size=1536,
                    num_hidden_layers=60, num_attention_heads=128, n_routed_experts=160, n_shared_experts=2, q_lora_rank=1536,
                    num_experts_per_tok=6, n_group=8, topk_group=3, topk_method="group_limited_greedy", first_k_dense_replace=1,
                    routed_scaling_factor=16.0, norm_topk_prob=False, rope_parameters=rope(10000.0), **mla)),
    "deepseek-v2-lite": (DeepseekV2Config, dict(hidden_size=2048, intermediate_size=10944, moe_intermediate_size=1408,
                         num_hidden_layers=27, num_attention_heads=16, n_routed_experts=64, n_shared_experts=2, q_lora_rank=None,
                         num_experts_per_tok=6, n_group=1, topk_group=1, topk_method="greedy", first_k_dense_replace=1,
                         rope_parameters=rope(10000.0), **mla)),
    "qwen2-57b-a14b": (Qwen2MoeConfig, dict(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
                       num_key_value_heads=4, num_experts=64, num_experts_per_tok=8, moe_intermediate_size=2560,
                       shared_expert_intermediate_size=20480, rope_parameters=rope(1000000.0))),
    "qwen3-30b-a3b": (Qwen3MoeConfig, dict(hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4,
                      head_dim=128, norm_topk_prob=True, rope_parameters=rope(1000000.0), max_position_embeddings=40960)),
    "mixtral-8x22b": (MixtralConfig, dict(vocab_size=32768, hidden_size=6144, intermediate_size=16384, num_hidden_layers=56,
                      num_attention_heads=48, rope_parameters=rope(1000000.0))),
    "gpt-oss-20b": (GptOssConfig, dict(num_hidden_layers=24, num_local_experts=32, rope_parameters=rope(150000.0))),
    "llama3-8b": (LlamaConfig, dict(vocab_size=128256, intermediate_size=14336, num_key_value_heads=8, rms_norm_eps=1e-5,
                  rope_parameters=rope(500000.0), max_position_embeddings=8192)),
}
for name, (cls, keys) in MODELS.items():
    new = json.loads(cls(**keys).to_json_string(use_diff=True))
    new.pop("transformers_version", None)
    old = dict(new, torch_dtype="bfloat16", rope_theta=new["rope_parameters"]["rope_theta"], rope_scaling=None)
    del old["rope_parameters"]
    for own, remote in (("num_mtp_layers", "num_nextn_predict_layers"),):
        if own in old: old[remote] = old.pop(own)
    if name == "kimi-k2": old["model_type"] = "kimi_k2"
    for version, text in (("v5", new), ("v4", old)):
        with open(os.path.join(HERE, f"{name}-{version}.json"), "w") as f: json.dump(text, f, indent=1); f.write("\n")
