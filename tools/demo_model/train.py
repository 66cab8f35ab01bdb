"""One training run from data.npz (prepare.py): fp16 weights, a report and a log.

usage: train.py --data DIR --out DIR --seconds S [--teach RUN ...]
A GPU is wanted; --device cpu is only for trying it.

With --teach the run is a student: most of its loss is on the averaged predictions of the runs named.
With --loops-from the last part of the steps also works against greedy decoding's loops (loops.py).
The number of steps is chosen to fill the time given; the learning rate falls linearly to zero.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import bpe
import loops
import model as M
import to_gguf
from data import Data
from optim import Optimizer


def load_run(path, device, dropout=0.0):
    net = M.Model(dropout=dropout).to(device)
    net.load_state_dict({k: torch.from_numpy(v.copy()).to(device) for k, v in to_gguf.load(path)[0].items()})
    return net


def token_losses(x, head, target, soft, part):
    """Losses of the next tokens (mixed with the loss on the teachers' logits `soft`), and the plain ones."""
    logits = F.linear(x, head).float().log_softmax(-1)
    hard = -logits.gather(-1, target.unsqueeze(-1))[..., 0]
    if not soft:
        return hard, hard
    wanted = sum(s.float().softmax(-1) for s in soft) / len(soft)
    return (1 - part) * hard - part * (wanted * logits).sum(-1), hard


fast_token_losses = torch.compile(token_losses, dynamic=False) if hasattr(torch, "compile") else token_losses


def losses(net, batch, teachers=(), part=0.0):
    """By token of a batch of (rows, 2, tokens + 1): mixed loss, plain loss; and the balance loss."""
    ids = batch[:, 0]
    with torch.autocast(batch.device.type, dtype=torch.bfloat16, enabled=batch.is_cuda, cache_enabled=False):
        x, balance = net.hidden(ids[:, :-1])
        with torch.no_grad():
            soft = [t(ids[:, :-1])[0] for t in teachers]
        fn = fast_token_losses if net.fast else token_losses
        mixed, hard = fn(x, net.lm_head.weight, ids[:, 1:], soft, part)
    return mixed, hard, balance


def mean(loss, weight):
    return (loss * weight).sum() / weight.sum().clamp(min=1)


class Step:
    """loss_of(*inputs) -> (loss, figures to log), gradients, optimiser's step; on a GPU one CUDA graph."""

    def __init__(self, loss_of, inputs, opt, graph):
        self.loss_of, self.inputs, self.opt, self.graph = loss_of, inputs, opt, None
        if not graph:
            return
        opt.lr.zero_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.eager()
        torch.cuda.current_stream().wait_stream(side)
        for p in opt.params:
            p.grad = None
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.eager()
        opt.forget()

    def eager(self):
        for p in self.opt.params:
            p.grad = None
        loss, figures = self.loss_of(*self.inputs)
        loss.backward()
        self.opt.step()
        return torch.stack([x.detach() for x in figures])

    def __call__(self, *inputs):
        for mine, new in zip(self.inputs, inputs):
            mine.copy_(new)
        if self.graph is None:
            return self.eager()
        self.graph.replay()
        return self.out


@torch.no_grad()
def evaluate(net, val, rows=32):
    """Mean loss over windows, without compiled layers."""
    fast, net.fast = net.fast, None
    net.eval()
    total = torch.zeros(2, device=val.device)
    for b in val.split(rows):
        weight = b[:, 1, 1:].float()
        total += torch.stack([(losses(net, b)[1] * weight).sum(), weight.sum()])
    net.train()
    net.fast = fast
    return (total[0] / total[1]).item()


@torch.no_grad()
def routing(net, val):
    """Expert shares by layer, and how well a layer's router, applied one layer early, foresees its choice."""
    fast, net.fast = net.fast, None
    net.eval()
    L, E, K = net.c.num_hidden_layers, net.c.num_experts, net.c.num_experts_per_tok
    share, seen, tokens = np.zeros((L, E)), np.zeros((L, 3)), 0
    for b in val.split(16):
        trace = []
        with torch.autocast(b.device.type, dtype=torch.bfloat16, enabled=b.is_cuda):
            net.hidden(b[:, 0, :-1], trace)
        tokens += trace[0][1].shape[0]
        for i, (n, idx) in enumerate(trace):
            share[i] += torch.bincount(idx.reshape(-1), minlength=E).cpu().numpy()
            if i:
                prev = trace[i - 1][0].reshape(-1, n.shape[-1])
                rank = net.model.layers[i].mlp.route(prev)[0].argsort(-1, descending=True)
                for j, top in enumerate((K, 2 * K)):
                    hit = (idx[:, :, None] == rank[:, None, :top]).any(-1)
                    seen[i][j] += hit.float().mean(-1).sum().item()
                same = (idx[:, :, None] == trace[i - 1][1][:, None, :]).any(-1)
                seen[i][2] += same.float().mean(-1).sum().item()
    net.train()
    net.fast = fast
    share /= share.sum(1, keepdims=True)
    out = []
    for i in range(L):
        row = dict(layer=i, min_share=share[i].min(), max_share=share[i].max(), unused=(share[i] == 0).sum())
        if i:
            names = "foreseen_top4", "foreseen_top8", "same_index_as_previous_layer"
            row.update(zip(names, seen[i] / tokens))
        out.append({k: round(float(v), 5) for k, v in row.items()})
    return out


def save(net, out, report, log, part_bytes=13 << 20):
    """fp16 weights in parts, report.json (with the weights' index) and log.csv."""
    index, blob, at = [], [], 0
    for name, p in net.state_dict().items():
        a = p.detach().float().cpu().numpy().astype("<f2")
        index.append(dict(name=name, shape=list(a.shape), offset=at))
        blob.append(a.tobytes())
        at += len(blob[-1])
    blob = b"".join(blob)
    for i in range(0, len(blob), part_bytes):
        with open(os.path.join(out, "weights.%d" % (i // part_bytes)), "wb") as f:
            f.write(blob[i : i + part_bytes])
    with open(os.path.join(out, "report.json"), "w") as f:
        json.dump(dict(report, index=index), f)
    with open(os.path.join(out, "log.csv"), "w", newline="") as f:
        csv.writer(f).writerows(log)


class Batches:
    """Batches of text windows, some of them turned into repetitions; the next epoch is made ahead of time."""

    def __init__(self, data, a):
        self.data, self.a = data, a
        self.text_rng, self.rng = np.random.default_rng(a.seed), np.random.default_rng(a.seed + 1000)
        self.stops = loops.sentence_ends(bpe.Tokenizer.load(os.path.join(a.data, "tokenizer.json")))
        self.worker = concurrent.futures.ThreadPoolExecutor(1)
        self.queue, self.later = [], self.worker.submit(self.epoch)

    def epoch(self):
        return self.data.windows(self.data.stream("train", self.text_rng), self.a.seq, self.text_rng)

    def draw(self, with_loops):
        """Tokens and weights, index one period earlier, mask of repetitions (without weight as text)."""
        a = self.a
        if len(self.queue) < a.rows:
            self.queue, self.later = self.later.result(), self.worker.submit(self.epoch)
        batch, self.queue = self.queue[: a.rows].copy(), self.queue[a.rows :]
        prev, again = np.zeros((a.rows, a.seq), np.int64), np.zeros((a.rows, a.seq), np.float32)
        if with_loops:
            k = a.loop_rows
            batch[-k:, 0], prev[-k:], again[-k:] = loops.repeated(batch[-k:, 0], self.rng, self.stops)
            batch[-k:, 1] = 0
        return [torch.from_numpy(x).to(a.device) for x in (batch, prev, again)]

    def close(self):
        self.worker.shutdown()


def steps_of(run, batches, opt, a):
    """Train for a.seconds; yields (step, steps, rate, figures) after every step."""
    cuda = a.device == "cuda"
    step, steps, mark = 0, 1 << 30, time.time()
    begun = mark
    while step < steps:
        if step in (20, 60) and cuda:
            torch.cuda.synchronize()
        if step == 20:
            mark = time.time()
        if step == 60:  # now the speed is known
            each = (time.time() - mark) / 40
            steps = 60 + int(max(0, begun + a.seconds - time.time()) / each / 1.015)
            print("%.1f ms a step, %d steps" % (each * 1e3, steps), flush=True)
        rate = a.lr * min(1, (step + 1) / a.warmup) * (1 - step / steps)
        opt.lr.fill_(rate)
        figures = run(*batches.draw(step >= a.loops_from * steps))
        step += 1
        if step % 20 == 0 and cuda:
            torch.cuda.synchronize()
            if time.time() - begun > a.seconds + 4:
                steps = step
        yield step, steps, rate, figures


def arguments(argv):
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--seconds", type=float, required=True, help="for the steps alone")
    ap.add_argument("--start", help="begin from this run's weights")
    ap.add_argument("--teach", nargs="*", default=[], help="runs whose averaged predictions are learned")
    ap.add_argument("--teach-part", type=float, default=0.8)
    ap.add_argument("--rows", type=int, default=16, help="windows a step")
    ap.add_argument("--seq", type=int, default=2048)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--warmup", type=int, default=150)
    ap.add_argument("--wd", type=float, default=0.6)
    ap.add_argument("--dropout", type=float, default=0.2)
    ap.add_argument("--balance", type=float, default=0.02, help="weight of the router's load-balance loss")
    ap.add_argument("--chat", type=float, default=0.45, help="part of the tales that are told in a chat")
    ap.add_argument("--loops-from", type=float, default=1.0, help="part of the steps before loops count")
    ap.add_argument("--loop-rows", type=int, default=3, help="windows a step that then hold repetitions")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--eval-every", type=int, default=300)
    ap.add_argument("--device", default="cuda")
    return ap.parse_args(argv)


def main(argv=None):
    a = arguments(argv)
    start = time.time()
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    cuda = a.device == "cuda"
    if cuda:
        torch.set_float32_matmul_precision("high")
        torch._dynamo.config.recompile_limit = 64
    data = Data(a.data, a.chat)
    val, val_chat = (torch.from_numpy(data.windows(data.stream("val", rng, chat), 1024, None)).to(a.device)
                     for rng, chat in ((None, 0.0), (np.random.default_rng(7), 1.0)))
    net = load_run(a.start, a.device, a.dropout) if a.start else M.Model(dropout=a.dropout).to(a.device)
    teachers = [load_run(run, a.device).eval().requires_grad_(False) for run in a.teach]
    if cuda:
        for m in [net, *teachers]:
            m.compile()
    opt = Optimizer(net, a.wd, a.device)

    def loss_of(batch, prev, again):
        mixed, hard, balance = losses(net, batch, teachers, a.teach_part)
        weight = batch[:, 1, 1:].float()
        loop, p = loops.loss(hard, prev, again)
        return mean(mixed, weight) + loop + a.balance * balance, (mean(hard, weight), balance, loop, p)

    batches = Batches(data, a)
    run = Step(loss_of, batches.draw(True), opt, cuda)
    print("%s ready after %.1f s" % (a.out, time.time() - start), flush=True)
    log = ["step tokens epochs lr train_loss val_loss balance loop_loss loop_probability seconds".split()]
    total, shown, begun = torch.zeros(4, device=a.device), 0, time.time()
    for step, steps, rate, figures in steps_of(run, batches, opt, a):
        total += figures
        shown += 1
        if step % a.eval_every == 0 or step == steps:
            text, bal, loop, p = (total / shown).tolist()
            total.zero_()
            shown, tokens = 0, step * a.rows * a.seq
            figures = [round(x, 4) for x in (text, evaluate(net, val), bal, loop, p)]
            log.append([step, tokens, round(tokens / len(data.z["train_ids"]), 3), "%.2e" % rate, *figures,
                        round(time.time() - begun, 1)])
            print(os.path.basename(a.out), *log[-1], flush=True)
            if not text < 20:
                raise SystemExit("the loss is not finite")
    batches.close()
    report = dict(args=vars(a), steps=steps, seconds=round(time.time() - begun, 1),
                  val_loss=evaluate(net, val), val_chat_loss=evaluate(net, val_chat),
                  routing=routing(net, val))
    save(net, a.out, report, log)
    shares = [s for r in report["routing"] for s in (r["min_share"], r["max_share"])]
    print("%s validation %.4f, chat %.4f, expert shares %.4f to %.4f" % (
        a.out, report["val_loss"], report["val_chat_loss"], min(shares), max(shares)), flush=True)
    return report


if __name__ == "__main__":
    main()
