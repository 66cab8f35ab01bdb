"""Muon for the matrices inside the layers, AdamW for the rest; every step can be part of a CUDA graph."""
import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonal(x, rounds=5):
    """Newton-Schulz iteration: every matrix of (n, r, c) with its singular values moved near 1."""
    a, b, c = COEFFICIENTS
    turned = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if turned else x
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(rounds):
        y = x @ x.transpose(1, 2)
        x = a * x + (b * y + c * y @ y) @ x
    return x.transpose(1, 2) if turned else x


def matrices(name, p):
    """The parameter as a stack of matrices for Muon, or None."""
    if ".layers." not in name or p.ndim < 2 or "conv1d" in name or min(p.shape[-2:]) < 64:
        return None
    if name.endswith("gate_up_proj"):
        return p.shape[0] * 2, p.shape[1] // 2, p.shape[2]
    return p.shape if p.ndim == 3 else (1, *p.shape)


class Optimizer:
    """One learning rate (a device tensor) for both: a Muon update is 0.2 times the size of AdamW's."""

    def __init__(self, net, wd, device):
        self.lr = torch.zeros((), device=device)
        self.wd, self.params = wd, list(net.parameters())
        self.groups, decay, plain = {}, [], []
        for name, p in net.named_parameters():
            shape = matrices(name, p)
            if shape is not None:
                self.groups.setdefault(tuple(shape), []).append(p)
            elif p.ndim >= 2 and "conv1d" not in name:
                decay.append(p)
            else:
                plain.append(p)
        self.momentum = {s: torch.zeros(len(ps), *s, device=device) for s, ps in self.groups.items()}
        cuda = device == "cuda"
        groups = [dict(params=decay, weight_decay=wd), dict(params=plain, weight_decay=0.0)]
        self.adam = torch.optim.AdamW(groups, lr=self.lr if cuda else 1e-3, betas=(0.9, 0.95), eps=1e-8,
                                      **(dict(fused=True, capturable=True) if cuda else {}))

    def forget(self):
        """Zero the moments."""
        for m in [*self.momentum.values(), *(x for s in self.adam.state.values() for x in s.values())]:
            m.zero_()

    @torch.no_grad()
    def step(self):
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.adam.step()
        for shape, ps in self.groups.items():
            grad = torch.stack([p.grad.view(shape) for p in ps])
            m = self.momentum[shape].lerp_(grad, 0.05)
            x = grad.lerp(m, 0.95).bfloat16().view(-1, *shape[1:])
            x = orthogonal(x).float() * (-0.2 * max(shape[1:]) ** 0.5 * self.lr)
            torch._foreach_mul_(ps, 1 - self.lr * self.wd)
            torch._foreach_add_(ps, [u.reshape(p.shape) for u, p in zip(x.view(len(ps), *shape), ps)])
