"""The Qwen3-Next architecture in plain PyTorch, for training a small model from scratch.

Parameter names, shapes and layouts are those of transformers' Qwen3NextForCausalLM, so a
checkpoint loads there unchanged (check_hf.py compares the two). The experts use PyTorch's
grouped matrix product on a GPU and a plain dense product elsewhere.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import model_config
from delta import gated_delta


def is_attention(c, layer):
    return (layer + 1) % c.full_attention_interval == 0


def rms_norm(x, weight, eps):
    """x / rms(x) * weight over the last dimension, in float32."""
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x.float(), x.shape[-1:], weight, eps)
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


class Norm(nn.Module):
    """RMSNorm whose stored weight is an offset from one."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        y = rms_norm(x, 1.0 + self.weight, self.eps)
        return y.to(torch.bfloat16) if y.is_cuda and torch.is_autocast_enabled() else y


class GatedNorm(nn.Module):
    """RMSNorm (plain weight) followed by a SiLU gate."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x, z):
        return rms_norm(x, self.weight, self.eps) * F.silu(z.float())


def l2norm(x, eps=1e-6):
    d = x.shape[-1]
    return rms_norm(x, None, eps / d) * d**-0.5


class DeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.nk, self.nv = c.linear_num_key_heads, c.linear_num_value_heads
        self.dk, self.dv = c.linear_key_head_dim, c.linear_value_head_dim
        self.kernel = c.linear_conv_kernel_dim
        key, val = self.nk * self.dk, self.nv * self.dv
        self.in_proj_qkvz = nn.Linear(c.hidden_size, 2 * key + 2 * val, bias=False)
        self.in_proj_ba = nn.Linear(c.hidden_size, 2 * self.nv, bias=False)
        self.conv1d = nn.Conv1d(2 * key + val, 2 * key + val, self.kernel, groups=2 * key + val, bias=False)
        self.dt_bias = nn.Parameter(torch.ones(self.nv))
        self.A_log = nn.Parameter(torch.zeros(self.nv))
        self.norm = GatedNorm(self.dv, c.rms_norm_eps)
        self.out_proj = nn.Linear(val, c.hidden_size, bias=False)

    def forward(self, x):
        B, T, _ = x.shape
        r = self.nv // self.nk
        # both projections are laid out by key head: [q, k, v*r, z*r] and [b*r, a*r]
        qkvz = self.in_proj_qkvz(x).view(B, T, self.nk, -1)
        q, k, v, z = qkvz.split([self.dk, self.dk, r * self.dv, r * self.dv], -1)
        b, a = self.in_proj_ba(x).view(B, T, self.nk, 2 * r).split([r, r], -1)
        qkv = torch.cat([y.reshape(B, T, -1) for y in (q, k, v)], -1)
        # causal depth-wise convolution as a sum of shifted products
        past = F.pad(qkv, (0, 0, self.kernel - 1, 0))
        w = self.conv1d.weight[:, 0].to(qkv.dtype)
        y = F.silu(sum(past[:, j : j + T] * w[:, j] for j in range(self.kernel)))
        q, k, v = y.split([self.nk * self.dk, self.nk * self.dk, self.nv * self.dv], -1)
        q = l2norm(q.reshape(B, T, self.nk, self.dk)).to(y.dtype) * self.dk**-0.5
        k = l2norm(k.reshape(B, T, self.nk, self.dk)).to(y.dtype)
        v = v.reshape(B, T, self.nv, self.dv)
        beta = b.reshape(B, T, self.nv).float().sigmoid()
        g = -self.A_log.exp() * F.softplus(a.reshape(B, T, self.nv).float() + self.dt_bias)
        with torch.autocast(x.device.type, enabled=False):
            o = gated_delta(q, k, v, g, beta)
        o = self.norm(o, z.reshape(B, T, self.nv, self.dv)).to(x.dtype)
        return self.out_proj(o.reshape(B, T, -1))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.h, self.kv, self.d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, self.h * self.d * 2, bias=False)  # query and gate, by head
        self.k_proj = nn.Linear(c.hidden_size, self.kv * self.d, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, self.kv * self.d, bias=False)
        self.o_proj = nn.Linear(self.h * self.d, c.hidden_size, bias=False)
        self.q_norm = Norm(self.d, c.rms_norm_eps)
        self.k_norm = Norm(self.d, c.rms_norm_eps)
        self.rot = int(c.head_dim * c.partial_rotary_factor)
        self.theta = c.rope_theta

    def rope(self, x):
        half = self.rot // 2
        f = self.theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        ang = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)[:, None] * f
        cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
        a, b, rest = x.split([half, half, x.shape[-1] - self.rot], -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def forward(self, x):
        B, T, _ = x.shape
        q, gate = self.q_proj(x).view(B, T, self.h, 2 * self.d).chunk(2, -1)
        k = self.k_proj(x).view(B, T, self.kv, self.d)
        v = self.v_proj(x).view(B, T, self.kv, self.d)
        q = self.rope(self.q_norm(q).transpose(1, 2))
        k = self.rope(self.k_norm(k).transpose(1, 2))
        r = self.h // self.kv
        k, v = k.repeat_interleave(r, 1), v.transpose(1, 2).repeat_interleave(r, 1)
        if hasattr(F, "scaled_dot_product_attention"):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = q @ k.transpose(-1, -2) * self.d**-0.5
            s = s.masked_fill(torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1), float("-inf"))
            o = s.softmax(-1) @ v
        o = o.transpose(1, 2).reshape(B, T, -1) * gate.reshape(B, T, -1).sigmoid()
        return self.o_proj(o)


class Dispatch(torch.autograd.Function):
    """Rows of x in expert order; the backward pass is a gather too, not a scatter."""

    @staticmethod
    def forward(ctx, x, token, inverse, k):
        ctx.save_for_backward(inverse)
        ctx.k = k
        return x[token]

    @staticmethod
    def backward(ctx, grad):
        (inverse,) = ctx.saved_tensors
        return grad[inverse].view(-1, ctx.k, grad.shape[-1]).sum(1), None, None, None


class Combine(torch.autograd.Function):
    """Undo the expert order."""

    @staticmethod
    def forward(ctx, y, order, inverse):
        ctx.save_for_backward(order)
        return y[inverse]

    @staticmethod
    def backward(ctx, grad):
        (order,) = ctx.saved_tensors
        return grad[order], None, None


def grouped_mm(x, w, ends):
    """Rows of x, sorted by expert and ending at ends, times each expert's matrix."""
    if not x.is_cuda:
        at = [0] + ends.tolist()
        return torch.cat([x[a:b] @ w[e] for e, (a, b) in enumerate(zip(at, at[1:]))])
    f = getattr(F, "grouped_mm", None) or torch._grouped_mm
    return f(x, w, offs=ends)


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        n, ff, dim = c.num_experts, c.moe_intermediate_size, c.hidden_size
        self.gate_up_proj = nn.Parameter(torch.empty(n, 2 * ff, dim))
        self.down_proj = nn.Parameter(torch.empty(n, dim, ff))


class Mlp(nn.Module):
    def __init__(self, dim, ff):
        super().__init__()
        self.gate_proj = nn.Linear(dim, ff, bias=False)
        self.up_proj = nn.Linear(dim, ff, bias=False)
        self.down_proj = nn.Linear(ff, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Moe(nn.Module):
    use_grouped = None  # None: on a GPU only

    def __init__(self, c):
        super().__init__()
        self.E, self.K = c.num_experts, c.num_experts_per_tok
        self.gate = nn.Linear(c.hidden_size, self.E, bias=False)
        self.experts = Experts(c)
        self.shared_expert = Mlp(c.hidden_size, c.shared_expert_intermediate_size)
        self.shared_expert_gate = nn.Linear(c.hidden_size, 1, bias=False)

    def route(self, x):
        with torch.autocast(x.device.type, enabled=False):
            p = (x.float() @ self.gate.weight.float().t()).softmax(-1)
        w, idx = p.topk(self.K, -1)
        return p, idx, w / w.sum(-1, keepdim=True)

    def forward(self, x3):
        shape = x3.shape
        x = x3.reshape(-1, shape[-1])
        p, idx, w = self.route(x)
        hit = torch.zeros_like(p).scatter_(1, idx, 1.0)
        # load balance: E * sum(share of assignments * mean probability), 1 when even
        balance = self.E / self.K * (hit.mean(0) * p.mean(0)).sum()
        if x.is_cuda if self.use_grouped is None else self.use_grouped:
            kind = torch.bfloat16 if x.is_cuda else x.dtype
            flat = idx.reshape(-1)
            order = flat.argsort(stable=True)
            places = torch.arange(order.numel(), device=order.device)
            inverse = torch.empty_like(order).scatter_(0, order, places)
            ends = hit.sum(0).cumsum(0).to(torch.int32)
            xs = Dispatch.apply(x.to(kind), order // self.K, inverse, self.K)
            h = grouped_mm(xs, self.experts.gate_up_proj.to(kind).transpose(1, 2), ends)
            a, b = h.chunk(2, -1)
            y = grouped_mm(F.silu(a) * b, self.experts.down_proj.to(kind).transpose(1, 2), ends)
            y = Combine.apply(y, order, inverse).view(-1, self.K, shape[-1])
            out = (y * w.unsqueeze(-1).to(y.dtype)).sum(1)
        else:
            full = torch.zeros_like(p).scatter(1, idx, w)
            a, b = torch.einsum("nd,efd->nef", x, self.experts.gate_up_proj.to(x.dtype)).chunk(2, -1)
            out = torch.einsum("nef,edf->nd", F.silu(a) * b * full.unsqueeze(-1).to(x.dtype),
                               self.experts.down_proj.to(x.dtype))
        out = out + self.shared_expert(x) * self.shared_expert_gate(x).sigmoid()
        return out.view(shape), balance, idx


class Dropout(nn.Module):
    """Dropout whose rate is a tensor, so that compiled code holds for any rate."""

    def __init__(self, p):
        super().__init__()
        self.register_buffer("p", torch.tensor(float(p)), persistent=False)

    def forward(self, x):
        if not self.training:
            return x
        return x * (torch.rand_like(x, dtype=torch.float32) >= self.p).to(x.dtype) / (1 - self.p).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, c, i, dropout):
        super().__init__()
        self.input_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        if is_attention(c, i):
            self.self_attn = Attention(c)
        else:
            self.linear_attn = DeltaNet(c)
        self.attn = is_attention(c, i)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.mlp = Moe(c)
        self.drop = Dropout(dropout)

    def forward(self, x):
        mix = self.self_attn if self.attn else self.linear_attn
        x = x + self.drop(mix(self.input_layernorm(x)))
        n = self.post_attention_layernorm(x)
        y, balance, idx = self.mlp(n)
        return x + self.drop(y), balance, idx, n


class Body(nn.Module):
    def __init__(self, c, dropout):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList([Layer(c, i, dropout) for i in range(c.num_hidden_layers)])
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)
        self.drop = Dropout(dropout)


class Model(nn.Module):
    """dropout acts on the embedding and on each sub-layer's output, in training only."""

    def __init__(self, c=model_config, dropout=0.0):
        super().__init__()
        self.c, self.fast = c, None
        self.model = Body(c, dropout)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        self.reset()

    def reset(self):
        std = 0.02
        deep = std / math.sqrt(2 * self.c.num_hidden_layers)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight", "down_proj")):
                    p.normal_(0, deep * 2)
                elif name.endswith("conv1d.weight"):
                    p.uniform_(-0.5, 0.5)
                elif name.endswith("A_log"):
                    p.copy_(torch.empty_like(p).uniform_(1, 16).log())
                elif name.endswith("dt_bias"):  # softplus(dt_bias) spread evenly in log over 0.001..0.1
                    dt = torch.empty_like(p).uniform_(math.log(1e-3), math.log(1e-1)).exp()
                    p.copy_(dt + torch.log(-torch.expm1(-dt)))
                elif p.ndim >= 2:
                    p.normal_(0, 0.05 if "embed" in name else 1.5 * std)

    def compile(self):
        """Compile the layers, one program for each of the two kinds; used until self.fast is None again."""
        self.fast = [torch.compile(layer, dynamic=False) for layer in self.model.layers]

    def hidden(self, ids, trace=None):
        """The last layer's normed output, and the balance loss; trace gets the layers' (input, experts)."""
        x = self.model.drop(self.model.embed_tokens(ids))
        balance = 0.0
        for layer in self.fast or self.model.layers:
            x, b, idx, n = layer(x)
            balance = balance + b / len(self.model.layers)
            if trace is not None:
                trace.append((n.detach(), idx))
        return self.model.norm(x), balance

    def forward(self, ids, trace=None):
        x, balance = self.hidden(ids, trace)
        return self.lm_head(x), balance
