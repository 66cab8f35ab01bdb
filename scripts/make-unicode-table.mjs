// Writes src/tokenizer/unicode_table.inc: the code points that pre-tokenizers tell apart (letters, marks, numbers,
// white space), from Unicode 15.1, the version that the outside judge (llama.cpp) uses.
// Usage: npm install --no-save @unicode/unicode-15.1.0 && node scripts/make-unicode-table.mjs
import fs from 'node:fs';

const classes = [
  ['L', 'General_Category/Letter'],
  ['M', 'General_Category/Mark'],
  ['N', 'General_Category/Number'],
  ['W', 'Binary_Property/White_Space'],
];
const table = new Array(0x110000).fill('O');
for (const [letter, property] of classes) {
  for (const code of (await import(`@unicode/unicode-15.1.0/${property}/code-points.mjs`)).default) {
    table[code] = letter;
  }
}

const ranges = [];
for (let code = 0; code < table.length; code++) {
  if (code === 0 || table[code] !== table[code - 1]) ranges.push(`{0x${code.toString(16)}, ${table[code]}}`);
}
let text = '// Made by scripts/make-unicode-table.mjs from Unicode 15.1: {first code point of a range, its class}.\n';
let line = '   ';
for (const range of ranges) {
  if (line.length + range.length + 2 > 110) {
    text += `${line}\n`;
    line = '   ';
  }
  line += ` ${range},`;
}
text += `${line}\n`;
fs.writeFileSync(new URL('../src/tokenizer/unicode_table.inc', import.meta.url), text);
