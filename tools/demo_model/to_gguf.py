"""Trained weights (train.py) + tokenizer.json -> an F16 GGUF file of arch qwen3next.

usage: to_gguf.py RUN_DIR TOKENIZER_JSON OUT.gguf [NAME]

Matrices become F16; norms, router, convolution and the other small tensors stay F32.
Layout changes against the checkpoint: norm weights get +1 (except the DeltaNet's gated
norm), A_log becomes -exp(A_log), and the joint q/k/v/z projection, stored by key head, is
split into attn_qkv (all q, all k, all v) and attn_gate (z).
"""
import glob
import json
import struct
import sys

import numpy as np

import bpe
import model_config as C

U32, F32, BOOL, STR, ARR, I32 = 4, 6, 7, 8, 9, 5
DESCRIPTION = ("A small fairy-tale model for demonstrations and tests, "
               "trained from scratch on public-domain tales.")
TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


def string(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STR:
        return string(v)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def pair(key, kind, v, item=None):
    out = string(key) + struct.pack("<I", kind)
    if kind == ARR:
        return out + struct.pack("<IQ", item, len(v)) + b"".join(value(item, x) for x in v)
    return out + value(kind, v)


def load(run):
    with open(run + "/report.json") as f:
        report = json.load(f)
    parts = sorted(glob.glob(run + "/weights.*"), key=lambda p: int(p.rsplit(".", 1)[1]))
    blob = b"".join(open(p, "rb").read() for p in parts)
    out = {}
    for e in report["index"]:
        n = int(np.prod(e["shape"])) if e["shape"] else 1
        out[e["name"]] = np.frombuffer(blob, "<f2", n, e["offset"]).astype(np.float32).reshape(e["shape"])
    return out, report


def convert(w):
    """(name, float32 array, keep in F32?) in GGUF naming."""
    names = {
        "input_layernorm.weight": "attn_norm.weight",
        "post_attention_layernorm.weight": "post_attention_norm.weight",
        "self_attn.q_proj.weight": "attn_q.weight",
        "self_attn.k_proj.weight": "attn_k.weight",
        "self_attn.v_proj.weight": "attn_v.weight",
        "self_attn.o_proj.weight": "attn_output.weight",
        "self_attn.q_norm.weight": "attn_q_norm.weight",
        "self_attn.k_norm.weight": "attn_k_norm.weight",
        "linear_attn.in_proj_ba.weight": "ssm_ba.weight",
        "linear_attn.conv1d.weight": "ssm_conv1d.weight",
        "linear_attn.dt_bias": "ssm_dt.bias",
        "linear_attn.A_log": "ssm_a",
        "linear_attn.norm.weight": "ssm_norm.weight",
        "linear_attn.out_proj.weight": "ssm_out.weight",
        "mlp.gate.weight": "ffn_gate_inp.weight",
        "mlp.experts.down_proj": "ffn_down_exps.weight",
        "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
        "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
        "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
        "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    }
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}
    for name, a in w.items():
        if name.endswith("norm.weight") and "linear_attn" not in name:
            a = a + 1.0
        if name in top:
            yield top[name], a, a.ndim < 2
            continue
        _, _, layer, rest = name.split(".", 3)
        blk = "blk.%s." % layer
        if rest == "linear_attn.in_proj_qkvz.weight":
            r = C.linear_num_value_heads // C.linear_num_key_heads
            dk, dv = C.linear_key_head_dim, C.linear_value_head_dim
            by_head = a.reshape(C.linear_num_key_heads, -1, a.shape[-1])
            q, k, v, z = np.split(by_head, [dk, 2 * dk, 2 * dk + r * dv], axis=1)
            flat = [x.reshape(-1, a.shape[-1]) for x in (q, k, v, z)]
            yield blk + "attn_qkv.weight", np.concatenate(flat[:3]), False
            yield blk + "attn_gate.weight", flat[3], False
        elif rest == "mlp.experts.gate_up_proj":
            ff = a.shape[1] // 2
            yield blk + "ffn_gate_exps.weight", a[:, :ff], False
            yield blk + "ffn_up_exps.weight", a[:, ff:], False
        else:
            if rest == "linear_attn.A_log":
                a = -np.exp(a)
            if rest in ("linear_attn.conv1d.weight", "mlp.shared_expert_gate.weight"):
                a = a.squeeze()
            new = names[rest]
            yield blk + new, a, a.ndim < 2 or new in ("ssm_conv1d.weight", "ffn_gate_inp.weight")


def main(run, tok_path, out, name="Red Lite Tales 32M"):
    w, report = load(run)
    tok = bpe.Tokenizer.load(tok_path)
    P = "qwen3next."
    kv = [
        pair("general.architecture", STR, "qwen3next"),
        pair("general.type", STR, "model"),
        pair("general.name", STR, name),
        pair("general.size_label", STR, "32M-A10M"),
        pair("general.description", STR, DESCRIPTION),
        pair("general.languages", ARR, ["en"], STR),
        pair("general.file_type", U32, 1),
        pair(P + "block_count", U32, C.num_hidden_layers),
        pair(P + "context_length", U32, C.max_position_embeddings),
        pair(P + "embedding_length", U32, C.hidden_size),
        pair(P + "feed_forward_length", U32, C.moe_intermediate_size * C.num_experts_per_tok),
        pair(P + "vocab_size", U32, C.vocab_size),
        pair(P + "attention.head_count", U32, C.num_attention_heads),
        pair(P + "attention.head_count_kv", U32, C.num_key_value_heads),
        pair(P + "attention.key_length", U32, C.head_dim),
        pair(P + "attention.value_length", U32, C.head_dim),
        pair(P + "attention.layer_norm_rms_epsilon", F32, C.rms_norm_eps),
        pair(P + "rope.freq_base", F32, C.rope_theta),
        pair(P + "rope.dimension_count", U32, int(C.head_dim * C.partial_rotary_factor)),
        pair(P + "expert_count", U32, C.num_experts),
        pair(P + "expert_used_count", U32, C.num_experts_per_tok),
        pair(P + "expert_feed_forward_length", U32, C.moe_intermediate_size),
        pair(P + "expert_shared_feed_forward_length", U32, C.shared_expert_intermediate_size),
        pair(P + "ssm.conv_kernel", U32, C.linear_conv_kernel_dim),
        pair(P + "ssm.state_size", U32, C.linear_key_head_dim),
        pair(P + "ssm.group_count", U32, C.linear_num_key_heads),
        pair(P + "ssm.time_step_rank", U32, C.linear_num_value_heads),
        pair(P + "ssm.inner_size", U32, C.linear_num_value_heads * C.linear_value_head_dim),
        pair(P + "full_attention_interval", U32, C.full_attention_interval),
        pair("tokenizer.ggml.model", STR, "gpt2"),
        pair("tokenizer.ggml.pre", STR, "qwen2"),
        pair("tokenizer.ggml.tokens", ARR, tok.tokens, STR),
        pair("tokenizer.ggml.token_type", ARR, [3 if t in bpe.SPECIAL else 1 for t in tok.tokens], I32),
        pair("tokenizer.ggml.merges", ARR, [" ".join(m) for m in tok.merges], STR),
        pair("tokenizer.ggml.bos_token_id", U32, tok.eot),
        pair("tokenizer.ggml.eos_token_id", U32, tok.im_end),
        pair("tokenizer.ggml.padding_token_id", U32, tok.eot),
        pair("tokenizer.ggml.add_bos_token", BOOL, False),
        pair("tokenizer.chat_template", STR, TEMPLATE),
    ]
    tensors = [(n, a.astype("<f4" if keep else "<f2"), 0 if keep else 1) for n, a, keep in convert(w)]
    head, at = b"", 0
    for n, a, kind in tensors:
        dims = a.shape[::-1]
        head += string(n) + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims)
        head += struct.pack("<IQ", kind, at)
        at += -(-a.nbytes // 32) * 32
    with open(out, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv)) + b"".join(kv) + head)
        f.write(b"\0" * (-f.tell() % 32))
        for _, a, _ in tensors:
            f.write(a.tobytes())
            f.write(b"\0" * (-f.tell() % 32))
    print(out, len(tensors), "tensors", sum(a.size for _, a, _ in tensors), "parameters")


if __name__ == "__main__":
    main(*sys.argv[1:])
