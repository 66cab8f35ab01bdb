"""Training against the loops of greedy decoding.

Pseudo-repetition training (Xu et al. 2022, "Learning to Break the Loop").
In some windows a phrase or sentence of the text is repeated until the window is full, and the model learns to
find every further repetition less likely: half as likely as the one before.
"""
import numpy as np

DECAY = 0.5


def sentence_ends(tok):
    """Ids of the tokens that end a sentence."""
    marks = (".", "!", "?", '."', '!"', '?"', ".'", "!'", "?'")
    return np.array([i for i, t in enumerate(tok.tokens[:-3]) if t.rstrip("\u010a").endswith(marks)])


def repeated(windows, rng, stops):
    """Windows whose text turns into repetitions: tokens, index one period earlier, mask of repeats."""
    n, width = windows.shape
    out = windows.copy()
    prev = np.zeros((n, width - 1), np.int64)
    mask = np.zeros((n, width - 1), np.float32)
    for i, row in enumerate(windows):
        ends = np.flatnonzero(np.isin(row[:500], stops)) + 1
        start, size = int(rng.integers(10, 300)), int(np.exp(rng.uniform(np.log(4), np.log(60))))
        if len(ends) > 3 and rng.random() < 0.7:  # whole sentences
            j = int(rng.integers(0, len(ends) - 1))
            k = min(len(ends) - 1, j + int(rng.integers(1, 3)))
            if 4 <= ends[k] - ends[j] <= 150:
                start, size = int(ends[j]), int(ends[k] - ends[j])
        t = np.arange(start, width)
        out[i, start:] = row[start + (t - start) % size]
        target = np.arange(1, width)
        again = target >= start + size
        prev[i] = np.where(again, target - size - 1, 0)
        mask[i] = again
    return out, prev, mask


def loss(hard, prev, again):
    """Distance of each repeated token's probability from DECAY times what it was one period earlier.

    hard: the tokens' losses; prev: index one period earlier; again: 1 at repetitions. Returns the mean
    distance (as a log loss) and the repetitions' mean probability.
    """
    p = (-hard).exp()
    far = (p - DECAY * p.detach().gather(1, prev)).abs()
    count = again.sum().clamp(min=1)
    return -((1 - far).clamp(min=1e-4).log() * again).sum() / count, (p.detach() * again).sum() / count
