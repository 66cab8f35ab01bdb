"""Judge GGUF files by llama.cpp's text: loops, and answers that keep to their request.

usage: judge.py LLAMA_COMPLETION MODEL.gguf OUT.json

For each of 24 beginnings, 140 greedy tokens; for each of 20 things, the answer (120 tokens) to
"Tell me a story about a THING." at temperature 0.7, seed 1, with repeat penalties 1.0 and 1.1.
Prints the part of six-word runs that are repetitions, and how many answers name the thing in their
first 200 characters (some 50 tokens) and at all.
"""
import json
import subprocess
import sys

from counts import PROMPTS, THINGS, names, repeats

REQUEST = "<|im_start|>user\nTell me a story about a %s.<|im_end|>\n<|im_start|>assistant\n"


def complete(program, model, prompt, n, *settings):
    command = [program, "-m", model, "-p", prompt, "-n", str(n), "-t", "1", "-c", "1024", "-no-cnv",
               "--no-display-prompt", "--no-warmup", "--no-repack", *settings]
    out = subprocess.run(command, capture_output=True, check=True)
    return out.stdout.decode("utf-8", "replace").replace("[end of text]", "").strip("\n")


def share(texts):
    counts = [repeats(t) for t in texts]
    return round(sum(a for a, _ in counts) / max(1, sum(b for _, b in counts)), 4)


def main(program, model, out):
    greedy = [p + complete(program, model, p, 140, "--temp", "0") for p in PROMPTS]
    result = dict(model=model, greedy_repeats=share(greedy), greedy=greedy)
    for penalty in ("1.0", "1.1"):
        settings = ["--temp", "0.7", "--seed", "1", "--repeat-penalty", penalty]
        said = [(x, complete(program, model, REQUEST % x, 120, *settings)) for x in THINGS[:20]]
        result["chat " + penalty] = dict(named_early=sum(names(t[:200], x) for x, t in said),
                                         named=sum(names(t, x) for x, t in said), of=len(said),
                                         repeats=share([t for _, t in said]), answers=said)
    with open(out, "w") as f:
        json.dump(result, f, indent=1)
    print(model, "greedy repeats", result["greedy_repeats"])
    for penalty in ("1.0", "1.1"):
        print("penalty", penalty, {k: v for k, v in result["chat " + penalty].items() if k != "answers"})


if __name__ == "__main__":
    main(*sys.argv[1:4])
