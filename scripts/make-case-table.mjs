// Writes src/chat/jinja/case_table.inc: the upper and lower case of every code point that has them, from the
// Unicode version of Node.js (here 17). Usage: node scripts/make-case-table.mjs
import fs from 'node:fs';

const hex = (code) => `0x${code.toString(16)}`;

/** Runs of code points that are `stride` apart and change by the same difference; what becomes several apart. */
function tabulate(change) {
  const runs = [];
  const several = [];
  for (let code = 0; code < 0x110000; code++) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const from = String.fromCodePoint(code);
    const to = [...change(from)].map((c) => c.codePointAt(0));
    if (to.length > 1) several.push({code, to});
    if (to.length > 1 || to[0] === code) continue;
    const delta = to[0] - code;
    const run = runs.at(-1);
    const step = run && code - run.last;
    if (run && run.delta === delta && step <= 2 && (run.first === run.last || step === run.stride)) {
      run.stride = step;
      run.last = code;
    } else {
      runs.push({first: code, last: code, stride: 1, delta});
    }
  }
  return {runs, several};
}

function lines(entries) {
  let text = '';
  let line = '   ';
  for (const entry of entries) {
    if (line.length + entry.length + 2 > 110) {
      text += `${line}\n`;
      line = '   ';
    }
    line += ` ${entry},`;
  }
  return `${text}${line}\n`;
}

const table = (name, {runs}) =>
  `constexpr CaseRun ${name}[] = {\n${lines(runs.map((r) => `{${hex(r.first)}, ${hex(r.last)}, ${r.stride}, ${r.delta}}`))}};\n`;
const upper = tabulate((c) => c.toUpperCase());
const lower = tabulate((c) => c.toLowerCase());
if (lower.several.length !== 1) throw new Error('more than U+0130 becomes several in lower case');
const text =
  '// Made by scripts/make-case-table.mjs: {first, last, stride, difference}; {code point, up to three in upper case}.\n' +
  table('kUpperRuns', upper) +
  table('kLowerRuns', lower) +
  `constexpr CaseSeveral kUpperSeveral[] = {\n${lines(
    upper.several.map((s) => `{${hex(s.code)}, {${[...s.to, 0, 0].slice(0, 3).map(hex).join(', ')}}}`))}};\n`;
fs.writeFileSync(new URL('../src/chat/jinja/case_table.inc', import.meta.url), text);
