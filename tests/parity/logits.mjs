// Logits against the judge's, on synthetic models of every kind; docs/parity.md has the reasons for the bounds.
import fs from 'node:fs';
import path from 'node:path';

import {compareTop1, divergences, largestDifference, mean, median, quantile} from './compare.mjs';
import {logitsOf, withModel} from './judge.mjs';
import {models} from './models.mjs';
import {readNpy, redlite} from './redlite.mjs';
import {makeRandom} from './strings.mjs';

const N_TOKENS = 144;
const SHARP_BOUND = 2e-6;  // median divergence
const SHIPPED_FACTOR = 2;  // of the judge's own distance to its F32 twin, which is 0 where it rounds nothing

// Logits that redlite writes, as rows.
export function redliteLogits(model, tokens, backend) {
  const out = `${model}.${backend}.npy`;
  redlite('logits', model, '--tokens', tokens.join(','), '--backend', backend, '--out', out);
  const rows = readNpy(out);
  fs.rmSync(out);
  return rows;
}

export function randomTokens(seed, nVocab, n = N_TOKENS) {
  const random = makeRandom(seed);
  return Array.from({length: n}, () => random(nVocab));
}

export function makeModel(folder, {name, options}) {
  const file = path.join(folder, `${name.replaceAll(' ', '-')}.gguf`);
  redlite('synth', file, '--preset', 'tiny', ...options);
  return file;
}

export function f32Twin(file) {
  const twin = file.replace(/\.gguf$/, '.f32.gguf');
  redlite('convert', file, twin, '--to', 'f32');
  return twin;
}

// What the judge says of a file: logits, and how far it is from itself with tokens one by one.
export const judgeLogits = (file, tokens, nVocab) => withModel(file, async (model) => {
  const together = await logitsOf(model, tokens, {nVocab});
  const apart = await logitsOf(model, tokens, {nVocab, batch: 1});
  return {logits: together, noise: together.map((row, i) => largestDifference(row, apart[i]))};
});

// How far the judge's logits of a shipped file are from what the file says, for each token; where rounding moved a
// router's choice this is large, and that may happen to another program at another token.
function shippedNoise(shipped, exact) {
  const differences = shipped.logits.map((row, i) => largestDifference(row, exact.logits[i]));
  const usual = quantile(differences, 0.95);
  return differences.map((x) => Math.max(x, usual));
}

const short = (x) => x.toExponential(1);

export function checkSharp(report, name, judge, reference) {
  const kl = median(divergences(judge.logits, reference));
  const top1 = compareTop1(judge.logits, reference, judge.noise);
  report.check(`${name}: sharp`, kl <= SHARP_BOUND, () => `median divergence ${short(kl)}, bound ${short(SHARP_BOUND)}`);
  report.check(`${name}: sharp top-1`, top1.unexcused === 0, () => `${top1.unexcused} likeliest tokens differ`);
  return {kl, excused: top1.different - top1.unexcused};
}

async function checkModel(report, folder, spec, seed) {
  const file = makeModel(folder, spec);
  const twin = f32Twin(file);
  const tokens = randomTokens(seed, 1000);  // of 1024
  const reference = redliteLogits(file, tokens, 'reference');
  const nVocab = reference[0].length;
  const cpu = redliteLogits(file, tokens, 'cpu');
  const exact = await judgeLogits(twin, tokens, nVocab);
  const shipped = await judgeLogits(file, tokens, nVocab);
  fs.rmSync(file);
  fs.rmSync(twin);

  const sharp = checkSharp(report, spec.name, exact, reference);
  const own = divergences(shipped.logits, exact.logits);
  const noise = shippedNoise(shipped, exact);
  const result = {own, reference: divergences(shipped.logits, reference), cpu: divergences(shipped.logits, cpu)};
  const bound = Math.max(SHIPPED_FACTOR * median(own), SHARP_BOUND);
  const told = [['reference', reference], ['cpu', cpu]].map(([backend, rows]) => {
    const distance = median(result[backend]);
    const top1 = compareTop1(shipped.logits, rows, noise);
    report.check(`${spec.name}: ${backend} as shipped`, distance <= bound,
                 () => `median divergence ${short(distance)}, bound ${short(bound)}`);
    report.check(`${spec.name}: ${backend} top-1 as shipped`, top1.unexcused === 0,
                 () => `${top1.unexcused} likeliest tokens differ`);
    return `${backend} ${short(distance)} (top-1: ${top1.different} excused)`;
  });
  console.log(`  ${spec.name.padEnd(16)} sharp ${short(sharp.kl)} (top-1: ${sharp.excused} excused); as shipped: judge ` +
              `${short(median(own))}, ${told.join(', ')}`);
  return result;
}

// All models. Returns nothing; the means over all of them are judged at the end, because in a single model they hang
// on the few tokens where rounding moved a router's choice.
export async function checkLogits(report, folder, only = '') {
  const all = {own: [], reference: [], cpu: []};
  for (const [i, spec] of models.entries()) {
    if (!spec.name.includes(only)) continue;
    try {
      const result = await checkModel(report, folder, spec, i + 1);
      for (const key of Object.keys(all)) all[key].push(...result[key]);
    } catch (error) {
      report.check(spec.name, false, () => error.message);
    }
  }
  const own = mean(all.own);
  for (const backend of ['reference', 'cpu']) {
    const distance = mean(all[backend]);
    report.check(`all models: ${backend} as shipped`, distance <= SHIPPED_FACTOR * own,
                 () => `mean divergence ${short(distance)}, the judge's own ${short(own)}`);
    console.log(`  all models       as shipped: mean divergence of ${backend} ${short(distance)}, the judge's own ${short(own)}`);
  }
}
