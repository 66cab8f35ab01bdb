// Logits against the judge's, on synthetic models of every kind; docs/parity.md has the reasons for the bounds.
import fs from 'node:fs';
import path from 'node:path';

import {compareTop1, divergences, largestDifference, mean, median} from './compare.mjs';
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

// How far the judge's logits of a shipped file are from what the file says, at the worst of its tokens: there rounding
// moved a router's choice, and that happens to another program at another token.
function shippedNoise(shipped, exact) {
  const worst = Math.max(...shipped.logits.map((row, i) => largestDifference(row, exact.logits[i])));
  return shipped.logits.map(() => worst);
}

const short = (x) => x.toExponential(1);

export function checkSharp(report, name, judge, rows) {
  const kl = median(divergences(judge.logits, rows));
  const top1 = compareTop1(judge.logits, rows, judge.noise);
  report.check(`${name}: sharp`, kl <= SHARP_BOUND, () => `median divergence ${short(kl)}, bound ${short(SHARP_BOUND)}`);
  report.check(`${name}: sharp top-1`, top1.unexcused === 0, () => `${top1.unexcused} likeliest tokens differ`);
  return {kl, excused: top1.different - top1.unexcused};
}

// `shipped` and `exact`: the judge on the file and on its F32 twin. Returns the divergences and how many likeliest
// tokens were excused.
export function checkShipped(report, name, {shipped, exact}, rows) {
  const own = median(divergences(shipped.logits, exact.logits));
  const bound = Math.max(SHIPPED_FACTOR * own, SHARP_BOUND);
  const all = divergences(shipped.logits, rows);
  const top1 = compareTop1(shipped.logits, rows, shippedNoise(shipped, exact));
  report.check(`${name}: as shipped`, median(all) <= bound,
               () => `median divergence ${short(median(all))}, bound ${short(bound)}`);
  report.check(`${name}: top-1 as shipped`, top1.unexcused === 0, () => `${top1.unexcused} likeliest tokens differ`);
  return {divergences: all, excused: top1.different - top1.unexcused};
}

async function checkModel(report, folder, spec, seed) {
  const file = makeModel(folder, spec);
  const twin = f32Twin(file);
  const tokens = randomTokens(seed, 1000);  // of 1024
  const reference = redliteLogits(file, tokens, 'reference');
  const cpu = redliteLogits(file, tokens, 'cpu');
  const cpuOnTwin = redliteLogits(twin, tokens, 'cpu');
  const nVocab = reference[0].length;
  const judge = {exact: await judgeLogits(twin, tokens, nVocab), shipped: await judgeLogits(file, tokens, nVocab)};
  fs.rmSync(file);
  fs.rmSync(twin);

  const sharp = checkSharp(report, `${spec.name}: reference`, judge.exact, reference);
  const sharpCpu = checkSharp(report, `${spec.name}: cpu on the F32 twin`, judge.exact, cpuOnTwin);
  const own = divergences(judge.shipped.logits, judge.exact.logits);
  const a = checkShipped(report, `${spec.name}: reference`, judge, reference);
  const b = checkShipped(report, `${spec.name}: cpu`, judge, cpu);
  console.log(`  ${spec.name.padEnd(16)} sharp: reference ${short(sharp.kl)}, cpu ${short(sharpCpu.kl)}; as shipped: judge ` +
              `${short(median(own))}, reference ${short(median(a.divergences))}, cpu ${short(median(b.divergences))}; ` +
              `top-1 excused: ${sharp.excused + sharpCpu.excused} sharp, ${a.excused} and ${b.excused} as shipped`);
  return {own, reference: a.divergences, cpu: b.divergences};
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
