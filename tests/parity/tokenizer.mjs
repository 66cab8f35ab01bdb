// The tokenizer against the judge's: every string must give the same ids.
import fs from 'node:fs';
import path from 'node:path';

import {readGguf, writeGguf} from './gguf.mjs';
import {withModel} from './judge.mjs';
import {tokenize} from './redlite.mjs';
import {hostile, makeRandom, randomCuts, randomString} from './strings.mjs';
import {learnMerges} from './vocabulary.mjs';

const RANDOM_ROUNDS = 10;
const RANDOM_STRINGS = 1000;  // in a round; the judge's time grows with their square
const SEPARATOR = '<|endoftext|>';

// The model with another pre-tokenizer and, if given, other texts and merges; its control tokens stay.
function variant(model, pretokenizer, folder, words) {
  const gguf = readGguf(model);
  const set = (key, value) => { gguf.metadata.get(`tokenizer.ggml.${key}`).value = value; };
  set('pre', pretokenizer);
  if (words) {
    const old = gguf.metadata.get('tokenizer.ggml.tokens').value;
    const bytes = (text) => Buffer.from(text, 'utf8').toString('latin1');
    set('tokens', {...old, values: [...words.texts.map(bytes), ...old.values.slice(words.texts.length)]});
    set('merges', {items: old.items, values: words.merges.map(bytes)});
  }
  const out = path.join(folder, `tokenizer-${pretokenizer}.gguf`);
  writeGguf(out, gguf);
  return out;
}

function difference(expected, found) {
  const at = expected.findIndex((token, i) => token !== found[i]);
  const from = at < 0 ? expected.length : at;
  return `token ${from}: judge ${expected.slice(from, from + 5)}, redlite ${found.slice(from, from + 5)}`;
}

async function checkVocabulary(report, name, file) {
  await withModel(file, async (judge) => {
    const check = (what, text, special) => {
      const expected = judge.tokenize(text, special);
      const found = tokenize(file, text, special);
      const equal = expected.length === found.length && expected.every((token, i) => token === found[i]);
      report.check(`tokenizer ${name}: ${what}`, equal, () => difference(expected, found));
    };
    for (const text of hostile) check(JSON.stringify(text).slice(0, 60), text, false);
    // One call for many strings: the separator, a special token, cuts the text as its ends do.
    check('hostile strings with special tokens', hostile.join(SEPARATOR), true);
    const random = makeRandom(1);
    for (let round = 0; round < RANDOM_ROUNDS; round++) {
      const make = round % 2 ? randomCuts : randomString;
      const strings = Array.from({length: RANDOM_STRINGS}, () => make(random, 30));
      check(`random strings, round ${round}`, strings.join(SEPARATOR), true);
      check(`random strings as one, round ${round}`, strings.join(''), false);
    }
    check('this file', fs.readFileSync(new URL(import.meta.url), 'utf8'), false);
  });
  fs.rmSync(file);
}

export async function checkTokenizer(report, demo, folder) {
  const random = makeRandom(2);
  const strings = hostile.filter((s) => s.length < 1000);
  for (let i = 0; i < 1500; i++) strings.push(randomString(random, 20), randomCuts(random, 20));
  const controls = readGguf(demo).metadata.get('tokenizer.ggml.tokens').value.values.slice(-3);
  const wordless = learnMerges(strings, 4096 - 256 - controls.length, controls);
  await checkVocabulary(report, "qwen2, the model's merges", variant(demo, 'qwen2', folder));
  await checkVocabulary(report, 'qwen2, merges across words', variant(demo, 'qwen2', folder, wordless));
  await checkVocabulary(report, 'qwen35, merges across words', variant(demo, 'qwen35', folder, wordless));
}
