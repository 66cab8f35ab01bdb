"""The gated delta rule of the DeltaNet layers, for training: chunked, with a hand-written backward pass.

    gated_delta(q, k, v, g, beta) -> o

q, k: (B, T, KH, D), q already scaled; v: (B, T, H, D); g: log decay and beta: (B, T, H), float32.
Value head h belongs to key head h // (H // KH). On a GPU, Triton kernels that hold the state in
registers; elsewhere the same chunked form in plain PyTorch. T is padded to whole chunks of 64.

Notation, for one head and one chunk: S is the state at its start, G the running sum of g in it,
Tm = (1 + strict lower part of beta_i k_i.k_j exp(G_i - G_j))^-1, R = beta (v - exp(G) k S), W = Tm R
what each token writes, o = exp(G) q S + (lower part of q_i.k_j exp(G_i - G_j)) W.
"""
import torch
import torch.nn.functional as F
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

CHUNK = 64


def recurrent(q, k, v, g, beta):
    """Token by token: what the other forms must equal."""
    r = v.shape[2] // k.shape[2]
    q, k = q.repeat_interleave(r, 2), k.repeat_interleave(r, 2)
    S = v.new_zeros(v.shape[0], v.shape[2], k.shape[-1], v.shape[-1])
    out = []
    for t in range(v.shape[1]):
        S = S * g[:, t, :, None, None].exp()
        d = (v[:, t] - (S * k[:, t, :, :, None]).sum(-2)) * beta[:, t, :, None]
        S = S + k[:, t, :, :, None] * d[:, :, None, :]
        out.append((S * q[:, t, :, :, None]).sum(-2))
    return torch.stack(out, 1)


def chunked(q, k, v, g, beta):
    """The chunked form in plain PyTorch; T must be a multiple of CHUNK."""
    B, T, H, D = v.shape
    r, N = H // k.shape[2], T // CHUNK
    q, k = q.repeat_interleave(r, 2), k.repeat_interleave(r, 2)
    q, k, v = (x.transpose(1, 2).reshape(B, H, N, CHUNK, D) for x in (q, k, v))
    beta = beta.transpose(1, 2).reshape(B, H, N, CHUNK, 1)
    g = g.transpose(1, 2).reshape(B, H, N, CHUNK).cumsum(-1)
    eg = g.exp().unsqueeze(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    decay = (g.unsqueeze(-1) - g.unsqueeze(-2)).masked_fill(~lower, float("-inf")).exp()
    kb = k * beta
    A = (kb @ k.transpose(-1, -2) * decay).tril(-1)
    uw = torch.linalg.solve_triangular(A + torch.eye(CHUNK, device=A.device, dtype=A.dtype),
                                       torch.cat([v * beta, kb * eg], -1), upper=False, unitriangular=True)
    u, w = uw.split([D, D], -1)
    last = g[..., -1:]
    ks = (k * (last - g).exp().unsqueeze(-1)).transpose(-1, -2)
    dec = last.exp().unsqueeze(-1)
    S = v.new_zeros(B, H, D, D)
    states, writes = [], []
    for un, wn, kn, dn in zip(*(x.unbind(2) for x in (u, w, ks, dec))):
        d = un - wn @ S
        states.append(S)
        writes.append(d)
        S = S * dn + kn @ d
    states, writes = torch.stack(states, 2), torch.stack(writes, 2)
    out = (q * eg) @ states + (q @ k.transpose(-1, -2) * decay) @ writes
    return out.reshape(B, H, T, D).transpose(1, 2)


if triton is not None:

    @triton.jit
    def _dot(a, b):
        return tl.dot(a, b, input_precision="ieee")

    @triton.jit
    def _low(k_row, k_col, g_row, g_col, b_row, same: tl.constexpr):
        """Minus a 16x16 block of the matrix to invert (same: a diagonal block, strictly lower)."""
        i = tl.arange(0, 16)
        a = -tl.dot(k_row, tl.trans(k_col)) * b_row[:, None]
        if same:
            keep = i[:, None] > i[None, :]
            return tl.where(keep, a * tl.exp(tl.where(keep, g_row[:, None] - g_col[None, :], 0.0)), 0.0)
        return a * tl.exp(g_row[:, None] - g_col[None, :])

    @triton.jit
    def _inverse16(a):
        """(1 - a)^-1 of a strictly lower 16x16 block, by forward substitution."""
        i = tl.arange(0, 16)
        for r in range(1, 16):
            row = tl.sum(tl.where((i == r)[:, None], a, 0.0), 0)
            row += tl.sum(row[:, None] * a, 0)
            a = tl.where((i == r)[:, None], row[None, :], a)
        return a + (i[:, None] == i[None, :]).to(tl.float32)

    @triton.jit
    def _invert(k_ptr, g_ptr, b_ptr, t_ptr, T, H, KH, D: tl.constexpr, C: tl.constexpr):
        """Tm of every chunk, from 16x16 blocks."""
        n, bh = tl.program_id(0), tl.program_id(1)
        b, h = bh // H, bh % H
        kh = h // (H // KH)
        i, d = tl.arange(0, 16), tl.arange(0, D)
        row = b * T + n * C + i
        k1 = tl.load(k_ptr + (row[:, None] * KH + kh) * D + d[None, :])
        k2 = tl.load(k_ptr + ((row[:, None] + 16) * KH + kh) * D + d[None, :])
        k3 = tl.load(k_ptr + ((row[:, None] + 32) * KH + kh) * D + d[None, :])
        k4 = tl.load(k_ptr + ((row[:, None] + 48) * KH + kh) * D + d[None, :])
        g1, b1 = tl.load(g_ptr + row * H + h), tl.load(b_ptr + row * H + h)
        g2, b2 = tl.load(g_ptr + (row + 16) * H + h), tl.load(b_ptr + (row + 16) * H + h)
        g3, b3 = tl.load(g_ptr + (row + 32) * H + h), tl.load(b_ptr + (row + 32) * H + h)
        g4, b4 = tl.load(g_ptr + (row + 48) * H + h), tl.load(b_ptr + (row + 48) * H + h)
        t11 = _inverse16(_low(k1, k1, g1, g1, b1, True))
        t22 = _inverse16(_low(k2, k2, g2, g2, b2, True))
        t33 = _inverse16(_low(k3, k3, g3, g3, b3, True))
        t44 = _inverse16(_low(k4, k4, g4, g4, b4, True))
        a21 = _low(k2, k1, g2, g1, b2, False)
        a32 = _low(k3, k2, g3, g2, b3, False)
        a43 = _low(k4, k3, g4, g3, b4, False)
        t21 = _dot(_dot(t22, a21), t11)
        t32 = _dot(_dot(t33, a32), t22)
        t43 = _dot(_dot(t44, a43), t33)
        a31 = _low(k3, k1, g3, g1, b3, False)
        a42 = _low(k4, k2, g4, g2, b4, False)
        t31 = _dot(t33, _dot(a31, t11) + _dot(a32, t21))
        t42 = _dot(t44, _dot(a42, t22) + _dot(a43, t32))
        a41 = _low(k4, k1, g4, g1, b4, False)
        t41 = _dot(t44, _dot(a41, t11) + _dot(a42, t21) + _dot(a43, t31))
        p = t_ptr + (bh * (T // C) + n) * C * C + i[:, None] * C + i[None, :]
        kind = t_ptr.dtype.element_ty
        zero = tl.zeros([16, 16], dtype=kind)
        tl.store(p, t11.to(kind))
        tl.store(p + 16, zero)
        tl.store(p + 32, zero)
        tl.store(p + 48, zero)
        tl.store(p + 16 * C, t21.to(kind))
        tl.store(p + 16 * C + 16, t22.to(kind))
        tl.store(p + 16 * C + 32, zero)
        tl.store(p + 16 * C + 48, zero)
        tl.store(p + 32 * C, t31.to(kind))
        tl.store(p + 32 * C + 16, t32.to(kind))
        tl.store(p + 32 * C + 32, t33.to(kind))
        tl.store(p + 32 * C + 48, zero)
        tl.store(p + 48 * C, t41.to(kind))
        tl.store(p + 48 * C + 16, t42.to(kind))
        tl.store(p + 48 * C + 32, t43.to(kind))
        tl.store(p + 48 * C + 48, t44.to(kind))

    @triton.jit
    def _forward(q_ptr, k_ptr, v_ptr, g_ptr, b_ptr, t_ptr, o_ptr, s_ptr, w_ptr, T, H, KH,
                 D: tl.constexpr, BV: tl.constexpr, C: tl.constexpr):
        """States, writes and outputs, chunk after chunk, for BV columns of the state."""
        bh = tl.program_id(1)
        b, h = bh // H, bh % H
        kh = h // (H // KH)
        i, d = tl.arange(0, C), tl.arange(0, D)
        c = tl.program_id(0) * BV + tl.arange(0, BV)
        kind = k_ptr.dtype.element_ty
        s = tl.zeros([D, BV], dtype=tl.float32)
        for n in range(T // C):
            row = b * T + n * C + i
            q = tl.load(q_ptr + (row[:, None] * KH + kh) * D + d[None, :])
            k = tl.load(k_ptr + (row[:, None] * KH + kh) * D + d[None, :])
            v = tl.load(v_ptr + (row[:, None] * H + h) * D + c[None, :])
            g, beta = tl.load(g_ptr + row * H + h), tl.load(b_ptr + row * H + h)
            last = tl.load(g_ptr + (b * T + n * C + C - 1) * H + h)
            m = bh * (T // C) + n
            t = tl.load(t_ptr + m * C * C + i[:, None] * C + i[None, :])
            sb = s.to(kind)
            tl.store(s_ptr + m * D * D + d[:, None] * D + c[None, :], sb)
            eg = tl.exp(g)
            r = beta[:, None] * (v.to(tl.float32) - eg[:, None] * tl.dot(k, sb))
            w = tl.dot(t, r.to(kind)).to(kind)
            at = (row[:, None] * H + h) * D + c[None, :]
            tl.store(w_ptr + at, w)
            keep = i[:, None] >= i[None, :]
            p = tl.dot(q, tl.trans(k)) * tl.exp(tl.where(keep, g[:, None] - g[None, :], float("-inf")))
            o = eg[:, None] * tl.dot(q, sb) + tl.dot(p.to(kind), w)
            tl.store(o_ptr + at, o.to(kind))
            kd = (k * tl.exp(last - g)[:, None]).to(kind)
            s = s * tl.exp(last) + tl.dot(tl.trans(kd), w)

    @triton.jit
    def _backward_states(q_ptr, k_ptr, g_ptr, b_ptr, t_ptr, do_ptr, ds_ptr, dr_ptr, T, H, KH,
                         D: tl.constexpr, BV: tl.constexpr, C: tl.constexpr):
        """Gradients of R and of the state after each chunk, last chunk first."""
        bh = tl.program_id(1)
        b, h = bh // H, bh % H
        kh = h // (H // KH)
        i, d = tl.arange(0, C), tl.arange(0, D)
        c = tl.program_id(0) * BV + tl.arange(0, BV)
        kind = k_ptr.dtype.element_ty
        ds = tl.zeros([D, BV], dtype=tl.float32)
        for back in range(T // C):
            n = T // C - 1 - back
            row = b * T + n * C + i
            q = tl.load(q_ptr + (row[:, None] * KH + kh) * D + d[None, :])
            k = tl.load(k_ptr + (row[:, None] * KH + kh) * D + d[None, :])
            at = (row[:, None] * H + h) * D + c[None, :]
            do = tl.load(do_ptr + at)
            g, beta = tl.load(g_ptr + row * H + h), tl.load(b_ptr + row * H + h)
            last = tl.load(g_ptr + (b * T + n * C + C - 1) * H + h)
            m = bh * (T // C) + n
            t = tl.load(t_ptr + m * C * C + i[:, None] * C + i[None, :])
            dsb = ds.to(kind)
            tl.store(ds_ptr + m * D * D + d[:, None] * D + c[None, :], dsb)
            keep = i[:, None] >= i[None, :]
            p = tl.dot(q, tl.trans(k)) * tl.exp(tl.where(keep, g[:, None] - g[None, :], float("-inf")))
            kd = (k * tl.exp(last - g)[:, None]).to(kind)
            dw = tl.dot(tl.trans(p.to(kind)), do) + tl.dot(kd, dsb)
            dr = tl.dot(tl.trans(t), dw.to(kind))
            tl.store(dr_ptr + at, dr.to(kind))
            eg = tl.exp(g)
            dx = (-(beta * eg)[:, None] * dr).to(kind)
            qe = (q * eg[:, None]).to(kind)
            ds = ds * tl.exp(last) + tl.dot(tl.trans(qe), do) + tl.dot(tl.trans(k), dx)

    @triton.jit
    def _backward_inputs(q_ptr, k_ptr, v_ptr, g_ptr, b_ptr, s_ptr, w_ptr, do_ptr, ds_ptr, dr_ptr,
                         dq_ptr, dk_ptr, dv_ptr, dg_ptr, db_ptr, T, H, KH, D: tl.constexpr, C: tl.constexpr):
        """Gradients of the inputs, each chunk alone; those of q and k by value head."""
        n, bh = tl.program_id(0), tl.program_id(1)
        b, h = bh // H, bh % H
        kh = h // (H // KH)
        i, d = tl.arange(0, C), tl.arange(0, D)
        row = b * T + n * C + i
        at = (row[:, None] * H + h) * D + d[None, :]
        kat = (row[:, None] * KH + kh) * D + d[None, :]
        kind = k_ptr.dtype.element_ty
        q, k = tl.load(q_ptr + kat), tl.load(k_ptr + kat)
        do, w, dr = tl.load(do_ptr + at), tl.load(w_ptr + at), tl.load(dr_ptr + at)
        g, beta = tl.load(g_ptr + row * H + h), tl.load(b_ptr + row * H + h)
        last = tl.load(g_ptr + (b * T + n * C + C - 1) * H + h)
        eg = tl.exp(g)
        keep = i[:, None] >= i[None, :]
        decay = tl.exp(tl.where(keep, g[:, None] - g[None, :], float("-inf")))
        # the outputs' part inside the chunk
        x = tl.dot(do, tl.trans(w)) * decay
        y = x * tl.dot(q, tl.trans(k))
        dg = tl.sum(y, 1) - tl.sum(y, 0)
        xb = x.to(kind)
        dq = tl.dot(xb, k)
        dk = tl.dot(tl.trans(xb), q)
        # the inverted matrix
        x = tl.where(i[:, None] > i[None, :], -tl.dot(dr, tl.trans(w)) * decay, 0.0)
        y = x * tl.dot(k, tl.trans(k))
        db = tl.sum(y, 1)
        y = y * beta[:, None]
        dg += tl.sum(y, 1) - tl.sum(y, 0)
        xb = (x * beta[:, None]).to(kind)
        dk += tl.dot(xb, k) + tl.dot(tl.trans(xb), k)
        # the state at the chunk's start
        m = bh * (T // C) + n
        sat = m * D * D + tl.arange(0, D)[:, None] * D + d[None, :]
        s = tl.load(s_ptr + sat)
        x = tl.dot(do, tl.trans(s)) * eg[:, None]
        dq += x
        dg += tl.sum(x * q, 1)
        tl.store(dq_ptr + at, dq.to(kind))
        x = tl.dot(k, s)
        v = tl.load(v_ptr + at)
        tl.store(dv_ptr + at, (beta[:, None] * dr).to(kind))
        db += tl.sum(dr * (v - eg[:, None] * x), 1)
        dx = -(beta * eg)[:, None] * dr
        dg += tl.sum(dx * x, 1)
        dk += tl.dot(dx.to(kind), tl.trans(s))
        # the state after the chunk
        ds = tl.load(ds_ptr + sat)
        x = tl.dot(w, tl.trans(ds)) * tl.exp(last - g)[:, None]
        dk += x
        tl.store(dk_ptr + at, dk.to(kind))
        e = tl.sum(x * k, 1)
        end = tl.sum(e, 0) + tl.exp(last) * tl.sum(tl.sum(ds.to(tl.float32) * s, 1), 0)
        dg += tl.where(i == C - 1, end, 0.0) - e
        tl.store(dg_ptr + row * H + h, dg)
        tl.store(db_ptr + row * H + h, db)

    @torch.library.custom_op("tales::delta", mutates_args=())
    def _delta(q: Tensor, k: Tensor, v: Tensor, g: Tensor,
               beta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        B, T, H, D = v.shape
        N = T // CHUNK
        t = v.new_empty(B, H, N, CHUNK, CHUNK)
        s = v.new_empty(B, H, N, D, D)
        o, w = torch.empty_like(v), torch.empty_like(v)
        KH = k.shape[2]
        _invert[(N, B * H)](k, g, beta, t, T, H, KH, D=D, C=CHUNK, num_warps=1)
        BV = 32
        _forward[(D // BV, B * H)](q, k, v, g, beta, t, o, s, w, T, H, KH, D=D, BV=BV, C=CHUNK, num_warps=4)
        return o, t, s, w

    @_delta.register_fake
    def _(q, k, v, g, beta):
        B, T, H, D = v.shape
        N = T // CHUNK
        return (torch.empty_like(v), v.new_empty(B, H, N, CHUNK, CHUNK), v.new_empty(B, H, N, D, D),
                torch.empty_like(v))

    @torch.library.custom_op("tales::delta_backward", mutates_args=())
    def _delta_backward(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, t: Tensor, s: Tensor,
                        w: Tensor, do: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        B, T, H, D = v.shape
        N, KH = T // CHUNK, k.shape[2]
        ds = torch.empty_like(s)
        dq, dk, dv, dr = (torch.empty_like(v) for _ in range(4))
        dg, db = torch.empty_like(g), torch.empty_like(beta)
        BV = 32
        _backward_states[(D // BV, B * H)](q, k, g, beta, t, do, ds, dr, T, H, KH, D=D, BV=BV, C=CHUNK,
                                           num_warps=4)
        _backward_inputs[(N, B * H)](q, k, v, g, beta, s, w, do, ds, dr, dq, dk, dv, dg, db, T, H, KH,
                                     D=D, C=CHUNK, num_warps=8)
        return dq, dk, dv, dg, db

    @_delta_backward.register_fake
    def _(q, k, v, g, beta, t, s, w, do):
        return (torch.empty_like(v), torch.empty_like(v), torch.empty_like(v), torch.empty_like(g),
                torch.empty_like(beta))

    def _keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs, *output[1:])

    def _gradients(ctx, do, *unused):
        q, k, v, g, beta, t, s, w = ctx.saved_tensors
        dq, dk, dv, dg, db = _delta_backward(q, k, v, g, beta, t, s, w, do.contiguous())
        by_head = (*k.shape[:3], v.shape[2] // k.shape[2], k.shape[3])
        return dq.view(by_head).sum(3), dk.view(by_head).sum(3), dv, dg, db

    _delta.register_autograd(_gradients, setup_context=_keep)


def gated_delta(q, k, v, g, beta):
    T = v.shape[1]
    pad = -T % CHUNK
    if pad:
        q, k, v = (F.pad(x, (0, 0, 0, 0, 0, pad)) for x in (q, k, v))
        g, beta = (F.pad(x, (0, 0, 0, pad)) for x in (g, beta))
    if v.is_cuda and triton is not None:
        total = g.view(g.shape[0], -1, CHUNK, g.shape[-1]).cumsum(2).view(g.shape)
        o = _delta(*(x.contiguous() for x in (q, k, v, total, beta)))[0]
    else:
        o = chunked(q, k, v, g, beta)
    return o[:, :T]
