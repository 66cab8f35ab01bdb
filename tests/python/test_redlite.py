"""The Python module on the demo model."""

import ast
import contextlib
import inspect
import io
import os
import re
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np

import redlite

MODEL = os.environ["REDLITE_DEMO_MODEL"]


class ModelTest(unittest.TestCase):
    def setUp(self):
        self.model = redlite.Model(MODEL)

    def test_facts(self):
        m = self.model
        self.assertEqual((m.architecture, m.n_layers, m.n_vocab, m.n_experts), ("qwen3next", 8, 4096, 32))

    def test_paths(self):
        self.assertEqual(redlite.Model(Path(MODEL)).path, MODEL)

    def test_paths_that_are_no_utf8(self):
        with tempfile.TemporaryDirectory() as folder:
            link = os.path.join(os.fsencode(folder), b"m\xff.gguf")
            with self.assertRaisesRegex(redlite.Error, "m.*gguf"):
                redlite.Model(os.fsdecode(link))
            os.symlink(os.path.realpath(MODEL), link)
            self.assertEqual(os.fsencode(redlite.Model(os.fsdecode(link)).path), link)

    def test_tokenizer(self):
        tokens = self.model.tokenize("Once upon a time")
        self.assertEqual(self.model.detokenize(tokens), "Once upon a time")
        self.assertTrue(self.model.is_end(self.model.tokenize("<|im_end|>", special=True)[0]))

    def test_chat_prompt(self):
        tokens = self.model.chat_prompt([{"role": "user", "content": "Hello"}])
        self.assertEqual(
            self.model.detokenize(tokens, special=True), "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")

    def test_tensors(self):
        by_name = {t.name: t for t in self.model.tensors()}
        embedding = by_name["token_embd.weight"]
        values = self.model.dequantize("token_embd.weight")
        self.assertEqual(values.shape, embedding.shape)
        self.assertEqual(values.shape, (4096, 256))
        self.assertEqual(values.dtype, np.float32)
        self.assertTrue(np.isfinite(values).all())

    def test_errors(self):
        with self.assertRaisesRegex(redlite.Error, "/nowhere.gguf"):
            redlite.Model("/nowhere.gguf")
        with self.assertRaisesRegex(redlite.Error, "no tensor"):
            self.model.dequantize("nothing")
        with self.assertRaisesRegex(redlite.Error, "abacus"):
            redlite.Session(self.model, backend="abacus")


class SessionTest(unittest.TestCase):
    def setUp(self):
        self.model = redlite.Model(MODEL)

    def test_generate_follows_the_logits(self):
        prompt = self.model.tokenize("Once upon a time")
        answer = redlite.Session(self.model, cache_mib=4).generate(prompt, max_tokens=12)
        text = "".join(answer)
        self.assertEqual(answer.finish_reason, "length")
        self.assertEqual(self.model.detokenize(answer.tokens), text)

        session = redlite.Session(self.model)
        row = session.logits(prompt)
        for token in answer.tokens:
            self.assertEqual(int(row.argmax()), token)
            row = session.logits([token])

    def test_logits_behind_each_token(self):
        prompt = self.model.tokenize("Once upon a time")
        each = redlite.Session(self.model).logits(prompt, all=True)
        self.assertEqual(each.shape, (len(prompt), self.model.n_vocab))
        last = redlite.Session(self.model).logits(prompt)
        np.testing.assert_array_equal(each[-1], last)

    def test_stop_and_seed(self):
        def tell(**options):
            return "".join(redlite.Session(self.model).generate("Once upon a time", max_tokens=30, **options))

        self.assertEqual(tell(temperature=0.8, seed=7), tell(temperature=0.8, seed=7))
        self.assertNotEqual(tell(temperature=0.8, seed=7), tell(temperature=0.8, seed=8))
        self.assertNotIn("the", tell(stop=["the"]))

    def test_routing(self):
        session = redlite.Session(self.model)
        session.record_routing()
        session.logits(self.model.tokenize("Once upon a time"))
        ids = session.take_routing()
        self.assertEqual(ids.shape, (session.position, 8, 4))
        self.assertTrue(((ids >= 0) & (ids < 32)).all())
        self.assertEqual(session.take_routing().shape[0], 0)

    def test_statistics(self):
        session = redlite.Session(self.model, cache_mib=4)
        "".join(session.generate("Once upon a time", max_tokens=10))
        statistics = session.cache_statistics()
        self.assertGreater(statistics.hits, 0)
        self.assertGreater(statistics.bytes_read, 0)

    def test_the_session_outlives_the_name_of_its_model(self):
        answer = redlite.Session(redlite.Model(MODEL)).generate("Once", max_tokens=3)
        self.assertTrue("".join(answer))

    def test_threads_run_while_it_computes(self):
        ticks = []
        stop = threading.Event()

        def tick():
            while not stop.is_set():
                ticks.append(1)
                stop.wait(0.001)

        thread = threading.Thread(target=tick)
        session = redlite.Session(self.model)
        thread.start()
        before = len(ticks)
        session.logits(list(range(100, 1100)))
        during = len(ticks) - before
        stop.set()
        thread.join()
        self.assertGreater(during, 5)


class GuideTest(unittest.TestCase):
    """The program in docs/guide.md."""

    def test_it_runs(self):
        guide = (Path(__file__).resolve().parents[2] / "docs/guide.md").read_text()
        (program,) = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
        out = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
            os.symlink(MODEL, Path(folder) / "model.gguf")
            before = os.getcwd()
            os.chdir(folder)
            try:
                exec(compile(program, "guide.md", "exec"), {})
            finally:
                os.chdir(before)
        self.assertGreater(len(out.getvalue().split()), 20)


class StubTest(unittest.TestCase):
    def test_stub_and_module_agree(self):
        stub = ast.parse((Path(redlite.__file__).parent / "__init__.pyi").read_text())
        for node in stub.body:
            if not isinstance(node, ast.ClassDef):
                continue
            declared = {n.name for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("__")}
            there = {n for n, _ in inspect.getmembers(getattr(redlite, node.name)) if not n.startswith("_")}
            if node.name == "Error":
                continue
            self.assertEqual(declared, there, node.name)


if __name__ == "__main__":
    unittest.main()
