// The program under test.
import {execFile, execFileSync} from 'node:child_process';
import fs from 'node:fs';
import {promisify} from 'node:util';

let program = 'redlite';
export const useProgram = (path) => { program = path; };

export function redlite(...args) {
  return execFileSync(program, args, {encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 28});
}

// `text` is a string or a Buffer.
export function tokenize(model, text, special) {
  const args = ['tokenize', model, '--text-file', '-', '--json', ...(special ? [] : ['--no-special'])];
  const out = execFileSync(program, args, {input: text, stdio: ['pipe', 'pipe', 'inherit'], maxBuffer: 1 << 28});
  return JSON.parse(out).tokens;
}

// A float32 array [rows, columns] in NumPy's format, as an array of Float32Array rows.
export function readNpy(path) {
  const bytes = fs.readFileSync(path);
  const start = 10 + bytes.readUInt16LE(8);
  const header = bytes.toString('latin1', 10, start);
  const [, rows, columns] = header.match(/'shape': \((\d+), (\d+)\)/).map(Number);
  if (!header.includes("'descr': '<f4'") || header.includes("'fortran_order': True")) {
    throw new Error(`${path}: not a float32 array in C order: ${header}`);
  }
  const all = new Float32Array(bytes.buffer.slice(bytes.byteOffset + start, bytes.byteOffset + bytes.length));
  if (all.length !== rows * columns) throw new Error(`${path}: ${all.length} values, not ${rows} x ${columns}`);
  return Array.from({length: rows}, (_, i) => all.subarray(i * columns, (i + 1) * columns));
}
