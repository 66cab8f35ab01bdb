"""Tests of the demo model's tools; run: python3 -m unittest -v   (in this folder)

What needs numpy and regex, or torch, is skipped where they are missing.
"""
import os
import random
import tempfile
import unittest

import chat_requests
import counts
import plot

HERE = os.path.dirname(os.path.abspath(__file__))

try:
    import numpy as np
    import regex  # noqa: F401  (bpe.py needs it)

    import bpe
    import data
    import loops
    import prepare
except ImportError:
    np = None

try:
    import torch

    import delta
    import model as M
    import optim
except ImportError:
    torch = None


class Counts(unittest.TestCase):
    def test_repeats(self):
        self.assertEqual(counts.repeats("one two three four five six seven"), (0, 2))
        self.assertEqual(counts.repeats("a b c d e f a b c d e f"), (1, 7))
        self.assertEqual(counts.repeats("too short"), (0, 0))

    def test_names(self):
        self.assertTrue(counts.names("Three mice ran away.", "mouse"))
        self.assertTrue(counts.names("The Foxes.", "fox"))
        self.assertFalse(counts.names("A boxer.", "ox"))


class Requests(unittest.TestCase):
    def test_subjects_come_early_and_with_their_adjective(self):
        text = "Once a little fox met Tommy. The fox ran. " + "And so on. " * 20 + "A dragon came."
        found = chat_requests.subjects(text, {"Tommy"})
        self.assertEqual(found[0], ("fox", "little"))
        self.assertIn(("Tommy", ""), found)
        self.assertNotIn("dragon", [n for n, _ in found])

    def test_articles(self):
        self.assertEqual(chat_requests.phrase("owl"), "an owl")
        self.assertEqual(chat_requests.phrase("owl", "little"), "a little owl")
        self.assertEqual(chat_requests.phrase("sea"), "the sea")
        self.assertEqual(chat_requests.phrase("gold"), "gold")
        self.assertEqual(chat_requests.phrase("Tommy"), "Tommy")

    def test_requests_name_only_what_is_there(self):
        rng = random.Random(1)
        for _ in range(50):
            for request in chat_requests.make(rng, "Once there was a wolf. He was hungry.", "", set()):
                for noun in ("fox", "dragon", "king"):
                    self.assertNotIn(noun, request)

    def test_names_are_written_large(self):
        text = "then Dorothy came and the Wizard spoke to Dorothy, a wizard. " * 60
        self.assertEqual(chat_requests.find_names(text), {"Dorothy"})


class Plot(unittest.TestCase):
    def test_every_run_of_the_log_is_drawn(self):
        runs = plot.read(os.path.join(HERE, "training_log.csv"))
        self.assertEqual(plot.svg(runs).count("<polyline"), len(runs))
        self.assertEqual(runs["polished"][0], runs["student"][-1])


@unittest.skipIf(np is None, "needs numpy and regex")
class Text(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tok = bpe.Tokenizer.load(os.path.join(HERE, "tokenizer.json"))

    def test_tokenizer_keeps_the_text(self):
        for text in ("Once upon a time, there was a king.\n\n\"Who's there?\"", "caf\u00e9 \u2603 12 345",
                     "  a\n\n\nb "):
            self.assertEqual(self.tok.decode(self.tok.encode(text)), text)
        self.assertEqual((self.tok.eot, self.tok.im_start, self.tok.im_end), (4093, 4094, 4095))

    def test_training_a_tokenizer(self):
        tok = bpe.train(["the cat and the hat and the bat"] * 3, 256 + 3 + 5)
        self.assertEqual(len(tok.tokens), 264)
        self.assertLess(len(tok.encode("the hat")), 7)

    def test_prepared_data_gives_back_the_tales(self):
        tale = ("The Fox %d\n\nOnce a fox lived in a wood. %s\n\nA wolf came to the fox and said he was "
                "hungry.\n\nThen the fox ran home, and the wolf after him.")
        tales = [tale % (i, "It was cold. " * 30) for i in range(120)]
        with tempfile.TemporaryDirectory() as out:
            with open(out + "/tales.txt", "w") as f:
                f.write("\n<|endoftext|>\n".join(tales))
            self.tok.save(out + "/tokenizer.json")
            prepare.main(out + "/tales.txt", out)
            d = data.Data(out, 1.0)
            plain = d.stream("train", None, 0.0)
            self.assertEqual(int((plain[0] == d.eot).sum()), 119)
            self.assertIn(self.tok.decode(plain[0][:60].tolist())[:40], "\n".join(tales))
            d.z["common"] = d.z["common"][:0]  # so small a text has no rare words
            chat = d.stream("train", np.random.default_rng(1))
            self.assertEqual(chat.shape[0], 2)
            self.assertEqual(int((chat[0] == d.start).sum() % 2), 0)  # every request has its answer
            self.assertTrue((chat[1][chat[0] == d.start] == 0).all())
            self.assertTrue((chat[1][chat[0] == d.end].max() == 1))
            fox = self.tok.encode(" fox")
            self.assertTrue((chat[1][chat[0] == fox[0]] == data.NAMED).any())
            windows = d.windows(chat, 128, np.random.default_rng(2))
            self.assertEqual(windows.shape[1:], (2, 129))

    def test_repetitions(self):
        rng = np.random.default_rng(0)
        windows = rng.integers(0, 4000, (6, 513))
        out, prev, again = loops.repeated(windows, rng, loops.sentence_ends(self.tok))
        for o, p, a in zip(out, prev, again):
            at = np.flatnonzero(a)
            self.assertTrue((o[at + 1] == o[p[at] + 1]).all())  # targets, one period apart


@unittest.skipIf(torch is None, "needs torch")
class Network(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def test_chunked_delta_rule_equals_the_recurrence(self):
        q, k, v = torch.randn(2, 150, 2, 16), torch.randn(2, 150, 2, 16), torch.randn(2, 150, 4, 16)
        q, k = M.l2norm(q), M.l2norm(k)
        g, beta = -torch.rand(2, 150, 4) * 2, torch.rand(2, 150, 4)
        a, b = delta.gated_delta(q, k, v, g, beta), delta.recurrent(q, k, v, g, beta)
        self.assertLess(((a - b).norm() / b.norm()).item(), 1e-4)

    def test_model_is_causal_and_has_gradients(self):
        net = M.Model()
        self.assertEqual(sum(p.numel() for p in net.parameters()), 31841248)
        ids = torch.randint(0, 4096, (1, 70))
        logits, balance = net(ids)
        (logits.log_softmax(-1)[..., 7].mean() + balance).backward()
        for name, p in net.named_parameters():
            self.assertTrue(p.grad is not None and torch.isfinite(p.grad).all(), name)
        net.eval()
        with torch.no_grad():
            self.assertLess((net(ids)[0][:, :40] - net(ids[:, :40])[0]).abs().max().item(), 1e-3)

    def test_grouped_experts_equal_the_dense_product(self):
        net, grads = M.Model(), []
        ids = torch.randint(0, 4096, (1, 40))
        for M.Moe.use_grouped in (False, True):
            net.zero_grad()
            logits, balance = net(ids)
            (logits.sin().sum() + balance).backward()
            grads.append([p.grad.clone() for p in net.parameters()])
        M.Moe.use_grouped = None
        self.assertLess(max(((a - b).norm() / b.norm()).item() for a, b in zip(*grads)), 1e-3)

    def test_orthogonal(self):
        x = optim.orthogonal(torch.randn(3, 128, 64))
        values = torch.linalg.svdvals(x)
        self.assertTrue((values > 0.5).all() and (values < 1.3).all())


if __name__ == "__main__":
    unittest.main()
