// Compares redlite with llama.cpp. Usage: node main.mjs REDLITE DEMO_MODEL FOLDER (for temporary files)
import fs from 'node:fs';
import path from 'node:path';

import {checkGreedy} from './greedy.mjs';
import {checkLogits} from './logits.mjs';
import {useProgram} from './redlite.mjs';
import {Report} from './report.mjs';
import {checkHarness} from './selftest.mjs';
import {checkTokenizer} from './tokenizer.mjs';

const [program, demo, parent] = process.argv.slice(2);
if (!parent) {
  console.error('usage: node main.mjs REDLITE DEMO_MODEL FOLDER');
  process.exit(2);
}
useProgram(program);
fs.mkdirSync(parent, {recursive: true});
const folder = fs.mkdtempSync(path.join(parent, 'parity-'));
process.on('exit', () => fs.rmSync(folder, {recursive: true, force: true}));

const report = new Report();
await report.section('tokenizer', () => checkTokenizer(report, demo, folder));
await report.section('logits', () => checkLogits(report, folder));
await report.section('greedy text', () => checkGreedy(report, demo, folder));
await report.section('the harness itself', () => checkHarness(report, folder));
console.log(report.failures ? `${report.failures} of ${report.checks} checks failed` : `all ${report.checks} checks passed`);
process.exit(report.failures ? 1 : 0);
