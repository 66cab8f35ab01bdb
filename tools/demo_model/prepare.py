"""Corpus -> tokenizer.json + data.npz (token ids of every piece, openings in it, and requests for them).

usage: prepare.py tales.txt[.xz] OUT_DIR      (an OUT_DIR/tokenizer.json that is there already is used)

The corpus is plain text; pieces are separated by lines `<|endoftext|>`, and a piece's first line is
usually its title. About 1 % of the pieces is held out (validation.txt). An opening is a place where an
answer to a request may begin: a piece's beginning, or a later paragraph of narration that names
something of which a request can speak.
"""
import lzma
import os
import random
import sys

import numpy as np

import bpe
import chat_requests

VOCAB = 4096
HOLD_OUT = 0.01


def encode_paragraphs(tok, body):
    """Ids of a piece's body, and (token, character) at which each paragraph begins."""
    ids, starts, at = [], [], 0
    for part in body.replace("\n\n", "\n\n\0").split("\0"):
        starts.append((len(ids), at))
        ids += tok.encode(part)
        at += len(part)
    return ids, starts


def openings(starts, body, names):
    """Places in the body where an answer may begin, after its first paragraph."""
    for token, char in starts[1:]:
        text = body[char : char + 900]
        if text[:1].isupper() and chat_requests.subjects(text, names):
            yield token, text


def pack_part(tok, rng, pieces, names):
    ids, spans, open_at, req, req_span = [], [], [], [], []
    for p in pieces:
        head, _, rest = p.partition("\n")
        title = head if rest.strip() and len(head) <= 90 else ""
        body = rest.strip() if title else p
        a = len(ids)
        ids += tok.encode(title + "\n\n") if title else []
        b = len(ids)
        body_ids, starts = encode_paragraphs(tok, body)
        ids += body_ids
        spans.append((a, b, len(ids)))
        later = [(at, text, "") for at, text in openings(starts, body, names)]
        for at, text, name in [(0, body[:900], title), *later]:
            open_at.append(b + at)
            for r in chat_requests.make(rng, text, name, names):
                start = len(req)
                req += tok.encode("user\n" + r)
                req_span.append((start, len(req)))
    return dict(ids=np.array(ids, np.uint16), span=np.array(spans, np.int64),
                open=np.array(open_at, np.int64), req=np.array(req, np.uint16),
                req_span=np.array(req_span, np.int64).reshape(-1, chat_requests.COUNT, 2))


def main(src, out):
    os.makedirs(out, exist_ok=True)
    with (lzma.open if src.endswith(".xz") else open)(src, "rt", encoding="utf-8") as f:
        raw = f.read()
    pieces = [p.strip() for p in raw.split("<|endoftext|>") if p.strip()]
    rng = random.Random(20)
    order = list(range(len(pieces)))
    rng.shuffle(order)
    held = set(order[: round(len(pieces) * HOLD_OUT)])
    parts = dict(train=[p for i, p in enumerate(pieces) if i not in held],
                 val=[p for i, p in enumerate(pieces) if i in held])
    if os.path.exists(os.path.join(out, "tokenizer.json")):
        tok = bpe.Tokenizer.load(os.path.join(out, "tokenizer.json"))
    else:
        tok = bpe.train(parts["train"], VOCAB)
        tok.save(os.path.join(out, "tokenizer.json"))
    names = chat_requests.find_names("\n".join(parts["train"]))

    arrays = {}
    for part, texts in parts.items():
        packed = pack_part(tok, rng, texts, names)
        arrays.update({part + "_" + k: v for k, v in packed.items()})
        print(part, len(texts), "pieces", len(packed["ids"]), "tokens", sum(map(len, texts)), "characters",
              len(packed["open"]), "openings")
    arrays["val_chars"] = np.array([sum(map(len, parts["val"]))])
    with open(os.path.join(out, "validation.txt"), "w") as f:
        f.write("\n\n".join(parts["val"]))

    for name, lines, role in (("go_on", chat_requests.GO_ON, "user\n"),
                              ("system", chat_requests.SYSTEM, "system\n")):
        enc = [tok.encode(role + s) for s in lines]
        arrays[name + "_ids"] = np.array(sum(enc, []), np.uint16)
        arrays[name + "_len"] = np.array([len(e) for e in enc])
    wordings = chat_requests.WITH_TITLE + chat_requests.WITH_NOUN + chat_requests.PLAIN
    common = {i for s in wordings for i in tok.encode("user\n" + s.replace("{n}", "x").replace("{t}", "x"))}
    # tokens that say nothing about what a request asks for: those of the wordings, and the most frequent ones
    frequent = np.bincount(arrays["train_ids"]).argsort()[::-1][:250]
    arrays["common"] = np.array(sorted(common | set(frequent.tolist())))
    arrays["assistant"] = np.array(tok.encode("assistant\n"), np.uint16)
    arrays["newline"] = np.array(tok.encode("\n"), np.uint16)
    # tokens that end a paragraph: where an answer may end
    # (the token, its ids without the trailing newlines, padded with -1)
    ends = [i for i, t in enumerate(tok.tokens[:-3]) if t.endswith("\u010a\u010a")]
    bare = [tok.encode(tok.decode([i]).rstrip("\n")) for i in ends]
    width = max(map(len, bare))
    arrays["para_end"] = np.array([[i] + b + [-1] * (width - len(b)) for i, b in zip(ends, bare)], np.int64)
    arrays["special"] = np.array([tok.eot, tok.im_start, tok.im_end])
    np.savez_compressed(os.path.join(out, "data.npz"), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:3])
