// The harness must be able to fail: files with one deliberate mistake, which it has to tell from the original.
import fs from 'node:fs';
import path from 'node:path';

import {readGguf, writeGguf} from './gguf.mjs';
import {checkSharp, checkShipped, f32Twin, judgeLogits, makeModel, randomTokens, redliteLogits} from './logits.mjs';
import {Report} from './report.mjs';
import {makeRandom} from './strings.mjs';

const Q8_0 = 8;  // ggml's id
const find = (gguf, name) => gguf.tensors.find((tensor) => tensor.name === name);

// Exchanges two of `count` equal pieces of a buffer.
function swap(buffer, count, a, b) {
  const n = buffer.length / count;
  const [x, y] = [a, b].map((i) => buffer.subarray(i * n, (i + 1) * n));
  const kept = Buffer.from(x);
  y.copy(x);
  kept.copy(y);
}

// Each is made in the file that redlite reads; the judge reads the right one.
const mistakes = {
  'no mistake': () => {},
  'two experts swapped': (gguf) => {
    for (const part of ['gate', 'up', 'down']) swap(find(gguf, `blk.1.ffn_${part}_exps.weight`).data, 16, 2, 3);
  },
  // The rows of q and k of both K heads change places, so every V head works with the other K head.
  'wrong head pairing': (gguf) => {
    for (const tensor of gguf.tensors.filter(({name}) => /\.(attn_qkv|ssm_conv1d)\.weight$/.test(name))) {
      swap(tensor.data, 8, 0, 1);  // 8 heads of 64 rows: 2 of q, 2 of k, 4 of v
      swap(tensor.data, 8, 2, 3);
    }
  },
  'wrong RoPE base': (gguf) => { gguf.metadata.get('qwen3next.rope.freq_base').value = 5e6; },
  '0.05 of noise': (gguf) => {
    const {data} = find(gguf, 'output_norm.weight');
    const random = makeRandom(5);
    for (let at = 0; at + 4 <= data.length; at += 4) {
      const sign = random(2) ? 1 : -1;
      data.writeFloatLE(data.readFloatLE(at) * (1 + sign * 0.05), at);
    }
  },
};

// What the sharp test cannot see, because the F32 twin is decoded by the same code: here, scales of all blocks of
// Q8_0 read 3 % too large.
function misreadScales(gguf) {
  for (const {data} of gguf.tensors.filter(({type}) => type === Q8_0)) {
    for (let at = 0; at + 34 <= data.length; at += 34) data.writeUInt16LE(scaledHalf(data.readUInt16LE(at), 1.03), at);
  }
}

// A positive normal binary16 number times a factor, rounded down.
function scaledHalf(bits, factor) {
  const value = (1024 + (bits & 1023)) * 2 ** ((bits >> 10) - 25) * factor;
  const exponent = Math.floor(Math.log2(value));
  return ((exponent + 15) << 10) | (Math.floor(value * 2 ** (10 - exponent)) & 1023);
}

export async function checkHarness(report, folder) {
  const file = makeModel(folder, {name: 'harness', options: ['--types', 'all=Q8_0']});
  const twin = f32Twin(file);
  const tokens = randomTokens(99, 1000);
  const exact = await judgeLogits(twin, tokens, 1024);
  const expect = (name, isMistake, make, check) => {
    const gguf = readGguf(file);
    make(gguf);
    const wrong = path.join(folder, 'mistake.gguf');
    writeGguf(wrong, gguf);
    const verdict = new Report(() => {});
    check(verdict, redliteLogits(wrong, tokens, 'reference'));
    fs.rmSync(wrong);
    const caught = verdict.failures > 0;
    report.check(`harness: ${name}`, caught === isMistake, () => (caught ? 'failed' : 'passed unnoticed'));
    console.log(`  ${name}: ${caught ? 'caught' : 'passed'}`);
  };
  for (const [name, make] of Object.entries(mistakes)) {
    expect(name, name !== 'no mistake', make, (verdict, rows) => checkSharp(verdict, name, exact, rows));
  }
  const shipped = await judgeLogits(file, tokens, 1024);
  expect('no mistake, as shipped', false, () => {},
         (verdict, rows) => checkShipped(verdict, 'as shipped', {shipped, exact}, rows));
  expect('scales misread, as shipped', true, misreadScales,
         (verdict, rows) => checkShipped(verdict, 'as shipped', {shipped, exact}, rows));
  fs.rmSync(file);
  fs.rmSync(twin);
}
