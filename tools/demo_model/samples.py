"""Greedy text and chat answers of a training run, on a GPU, with the counts of counts.py.

usage: samples.py RUN DATA_DIR OUT.json

Loops: the part of the six-word runs in 140 greedy tokens that occurred before in the same text.
Keeping: the part of the answers (temperature 0.7, repeat penalties 1.0 and 1.1) to "Tell me a story
about a X." that name X in their first 60 and 160 tokens.
"""
import json
import sys

import torch

import bpe
from counts import PROMPTS, THINGS, names, repeats
from train import load_run

def chat(tok, text):
    return [tok.im_start, *tok.encode("user\n" + text), tok.im_end, *tok.encode("\n"), tok.im_start,
            *tok.encode("assistant\n")]


@torch.no_grad()
def generate(net, prompts, new, stop, temperature=0.0, penalty=1.0, window=64):
    """Continuations of several prompts at once; every token runs all windows again, as a CUDA graph."""
    lengths = torch.tensor([len(p) for p in prompts], device="cuda")
    width = -(-(int(lengths.max()) + new) // 64) * 64
    ids = torch.zeros(len(prompts), width, dtype=torch.long, device="cuda")
    for i, p in enumerate(prompts):
        ids[i, : len(p)] = torch.tensor(p)
    rows, last = torch.arange(len(prompts), device="cuda"), lengths - 1

    def logits_of():
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            return net.lm_head(net.hidden(ids)[0][rows, last]).float()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        logits_of()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = logits_of()
    for _ in range(new):
        graph.replay()
        logits = out.clone()
        if penalty != 1.0:
            seen = ids.gather(1, (last[:, None] - torch.arange(window, device="cuda")).clamp(min=0))
            old = logits.gather(1, seen)
            logits.scatter_(1, seen, torch.where(old > 0, old / penalty, old * penalty))
        if temperature:
            pick = (logits / temperature).softmax(-1).multinomial(1)[:, 0]
        else:
            pick = logits.argmax(-1)
        last += 1
        ids[rows, last] = pick
    said = [ids[i, n : n + new].tolist() for i, n in enumerate(lengths.tolist())]
    return [x[: next((j for j, t in enumerate(x) if t in stop), new)] for x in said]


def main(run, data, out):
    torch.manual_seed(5)
    net = load_run(run, "cuda").eval()
    tok = bpe.Tokenizer.load(data + "/tokenizer.json")
    stop = (tok.eot, tok.im_end)
    result = {}
    greedy = [tok.decode(x) for x in generate(net, [tok.encode(p) for p in PROMPTS], 140, stop)]
    counts = [repeats(p + t) for p, t in zip(PROMPTS, greedy)]
    result["loops"] = sum(a for a, _ in counts) / max(1, sum(b for _, b in counts))
    asked = [x for x in THINGS for _ in range(4)]
    for penalty in (1.0, 1.1):
        prompts = [chat(tok, "Tell me a story about a %s." % x) for x in asked]
        said = generate(net, prompts, 160, stop, 0.7, penalty)
        part = lambda n: sum(names(tok.decode(s[:n]), x) for s, x in zip(said, asked)) / len(asked)
        result["penalty %s" % penalty] = dict(in_60=part(60), in_160=part(160),
                                              mean_length=sum(map(len, said)) / len(said))
        result["answers %s" % penalty] = [(x, tok.decode(s)) for x, s in list(zip(asked, said))[::11]]
    result["greedy"] = [p + t for p, t in zip(PROMPTS, greedy)][:6]
    with open(out, "w") as f:
        json.dump(result, f, indent=1)
    print(run, {k: v for k, v in result.items() if k == "loops" or k.startswith("penalty")}, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
