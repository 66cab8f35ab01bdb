"""Token streams from data.npz (prepare.py): plain tales and chat-shaped ones, drawn anew for every epoch."""
import os

import numpy as np

NAMED = 3  # loss weight of an answer's first words that the request named


class Data:
    def __init__(self, path, chat):
        z = np.load(os.path.join(path, "data.npz"))
        self.z = {k: z[k] for k in z.files}
        self.chat = chat  # part of the tales that are told in a chat
        self.eot, self.start, self.end = self.z["special"].tolist()
        self.nl = self.z["newline"]
        self.assistant = np.concatenate([[self.start], self.z["assistant"]])
        self.bare = {r[0]: r[1:][r[1:] >= 0] for r in self.z["para_end"]}
        self.ends = self.z["para_end"][:, 0]
        self.go_on = self._lines("go_on")
        self.system = self._lines("system")

    def _lines(self, name):
        return np.split(self.z[name + "_ids"], np.cumsum(self.z[name + "_len"])[:-1])

    def turn(self, ids):
        """A turn of the user or the system: read, not learned."""
        return [(x, 0) for x in ([self.start], ids, [self.end], self.nl)]

    def answer(self, body, asked):
        """An answer; words that the request named weigh more where they come early."""
        weight = np.ones(len(body), np.uint8)
        if len(asked):
            weight[:160][np.isin(body[:160], asked)] = NAMED
        out = [(self.assistant, 0)]
        last = self.bare.get(body[-1])
        if last is not None:  # without the newlines that end its last paragraph
            out += [(body[:-1], weight[:-1]), (last, 1)]
        else:
            out.append((body, weight))
        return out + [([self.end], 1), (self.nl, 0)]

    def tell(self, rng, part, a, e):
        """ids[a:e] as chats: cut at openings into answers to requests, some going on in the same chat."""
        ids, req = self.z[part + "_ids"], self.z[part + "_req"]
        lo, hi = np.searchsorted(self.z[part + "_open"], [a, e])
        at = self.z[part + "_open"][lo:hi]
        paragraphs = np.flatnonzero(np.isin(ids[a:e], self.ends)) + a + 1
        out, pos, going = [], a, False
        while pos < e:
            if going:
                out += self.turn(self.go_on[rng.integers(len(self.go_on))])
                asked = ()
            else:
                if rng.random() < 0.1:
                    out += self.turn(self.system[rng.integers(len(self.system))])
                wordings = self.z[part + "_req_span"][lo + np.searchsorted(at, pos)]
                s, t = wordings[rng.integers(len(wordings))]
                asked = np.setdiff1d(req[s:t], self.z["common"])
                out += self.turn(req[s:t])
            size = int(rng.choice([120, 250, 400, 700, 1000]) * rng.uniform(0.7, 1.4))
            going = rng.random() < 0.3
            stops = paragraphs if going else at
            stops = stops[(stops > pos + size) & (stops < e - 60)]
            cut = int(stops[0]) if len(stops) else e
            out += self.answer(ids[pos:cut], asked)
            if cut == e or not going:
                out.append(([self.eot], 1))
            pos = cut
        return out

    def stream(self, part, rng, chat=None):
        """All pieces of a part, in random order if rng is given: token ids and loss weights."""
        ids, span = self.z[part + "_ids"], self.z[part + "_span"]
        chat = self.chat if chat is None else chat
        order = rng.permutation(len(span)) if rng is not None else range(len(span))
        out = []
        for i in order:
            a, b, e = span[i]
            if rng is not None and rng.random() < chat:
                out += self.tell(rng, part, b, e)
            else:
                out.append((ids[b if rng is not None and rng.random() < 0.3 else a : e], 1))
                out.append(([self.eot], 1))
        n = [len(x) for x, _ in out]
        tokens = np.concatenate([np.asarray(x, np.int64) for x, _ in out])
        weights = np.concatenate([np.broadcast_to(np.asarray(w, np.uint8), k) for (_, w), k in zip(out, n)])
        return np.stack([tokens, weights])

    def windows(self, stream, seq, rng):
        """(n, 2, seq + 1): tokens and weights; from a random offset and in random order if rng is given."""
        off = int(rng.integers(seq)) if rng is not None else 0
        at = off + np.arange((stream.shape[1] - off - 1) // seq) * seq
        if rng is not None:
            rng.shuffle(at)
        return np.stack([stream[:, i : i + seq + 1] for i in at])
