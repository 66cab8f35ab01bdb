// Compares redlite with llama.cpp. Usage: node main.mjs REDLITE DEMO_MODEL FOLDER [SECTION ...], as `tokenizer logits`;
// all sections if none is named. FOLDER is for temporary files.
import fs from 'node:fs';
import path from 'node:path';

import {checkGreedy} from './greedy.mjs';
import {checkLogits} from './logits.mjs';
import {useProgram} from './redlite.mjs';
import {Report} from './report.mjs';
import {checkHarness} from './selftest.mjs';
import {checkTokenizer} from './tokenizer.mjs';

const [program, demo, parent, ...chosen] = process.argv.slice(2);
if (!parent) {
  console.error('usage: node main.mjs REDLITE DEMO_MODEL FOLDER [SECTION ...]');
  process.exit(2);
}
useProgram(program);
fs.mkdirSync(parent, {recursive: true});
const folder = fs.mkdtempSync(path.join(parent, 'parity-'));
process.on('exit', () => fs.rmSync(folder, {recursive: true, force: true}));

const report = new Report();
const sections = {
  tokenizer: () => checkTokenizer(report, demo, folder),
  logits: () => checkLogits(report, folder),
  greedy: () => checkGreedy(report, demo, folder),
  harness: () => checkHarness(report, folder),
};
for (const name of chosen.length ? chosen : Object.keys(sections)) {
  if (!sections[name]) throw new Error(`no section ${name}: there are ${Object.keys(sections).join(', ')}`);
  await report.section(name, sections[name]);
}
console.log(report.failures ? `${report.failures} of ${report.checks} checks failed` : `all ${report.checks} checks passed`);
process.exit(report.failures ? 1 : 0);
