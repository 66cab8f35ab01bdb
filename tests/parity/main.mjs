// Compares redlite with llama.cpp. Usage: node main.mjs REDLITE DEMO_MODEL FOLDER (for temporary files)
import fs from 'node:fs';

import {Report} from './report.mjs';
import {useProgram} from './redlite.mjs';
import {checkTokenizer} from './tokenizer.mjs';

const [program, demo, folder] = process.argv.slice(2);
if (!folder) {
  console.error('usage: node main.mjs REDLITE DEMO_MODEL FOLDER');
  process.exit(2);
}
useProgram(program);
fs.mkdirSync(folder, {recursive: true});

const report = new Report();
await report.section('tokenizer', () => checkTokenizer(report, demo, folder));
console.log(report.failures ? `${report.failures} of ${report.checks} checks failed` : `all ${report.checks} checks passed`);
process.exit(report.failures ? 1 : 0);
