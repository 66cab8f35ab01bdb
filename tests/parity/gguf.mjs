// Just enough of GGUF (version 3) to make variants of a model: read, change metadata or bytes of tensors, write.
import fs from 'node:fs';

const STRING = 8;
const ARRAY = 9;
const SCALARS = {
  0: [1, 'UInt8'], 1: [1, 'Int8'], 2: [2, 'UInt16LE'], 3: [2, 'Int16LE'], 4: [4, 'UInt32LE'], 5: [4, 'Int32LE'],
  6: [4, 'FloatLE'], 7: [1, 'UInt8'], 10: [8, 'BigUInt64LE'], 11: [8, 'BigInt64LE'], 12: [8, 'DoubleLE'],
};
export const U32 = 4;
export const F32 = 6;

class Reader {
  constructor(buffer) {
    this.buffer = buffer;
    this.at = 0;
  }
  scalar(type) {
    const [bytes, name] = SCALARS[type];
    const value = this.buffer[`read${name}`](this.at);
    this.at += bytes;
    return value;
  }
  u32() { return this.scalar(4); }
  u64() { return Number(this.scalar(10)); }
  string() {
    const length = this.u64();
    this.at += length;
    return this.buffer.toString('latin1', this.at - length, this.at);  // bytes, whatever they are
  }
  value(type) {
    if (type === STRING) return this.string();
    if (type !== ARRAY) return this.scalar(type);
    const items = this.u32();
    const count = this.u64();
    return {items, values: Array.from({length: count}, () => this.value(items))};
  }
}

class Writer {
  constructor() {
    this.parts = [];
    this.length = 0;
  }
  bytes(buffer) {
    this.parts.push(buffer);
    this.length += buffer.length;
  }
  scalar(type, value) {
    const [bytes, name] = SCALARS[type];
    const buffer = Buffer.alloc(bytes);
    buffer[`write${name}`](value);
    this.bytes(buffer);
  }
  u32(value) { this.scalar(4, value); }
  u64(value) { this.scalar(10, BigInt(value)); }
  string(value) {
    const buffer = Buffer.from(value, 'latin1');
    this.u64(buffer.length);
    this.bytes(buffer);
  }
  value(type, value) {
    if (type === STRING) return this.string(value);
    if (type !== ARRAY) return this.scalar(type, value);
    this.u32(value.items);
    this.u64(value.values.length);
    for (const item of value.values) this.value(value.items, item);
  }
}

const rounded = (n, alignment) => Math.ceil(n / alignment) * alignment;

// {metadata: Map of key -> {type, value}, tensors: [{name, shape, type, data}]}. Strings hold bytes (latin1).
export function readGguf(path) {
  const reader = new Reader(fs.readFileSync(path));
  if (reader.buffer.toString('latin1', 0, 4) !== 'GGUF') throw new Error(`${path}: not a GGUF file`);
  reader.at = 8;
  const nTensors = reader.u64();
  const nKeys = reader.u64();
  const metadata = new Map();
  for (let i = 0; i < nKeys; i++) {
    const key = reader.string();
    const type = reader.u32();
    metadata.set(key, {type, value: reader.value(type)});
  }
  const tensors = [];
  for (let i = 0; i < nTensors; i++) {
    const name = reader.string();
    const shape = Array.from({length: reader.u32()}, () => reader.u64());
    tensors.push({name, shape, type: reader.u32(), offset: reader.u64()});
  }
  const start = rounded(reader.at, metadata.get('general.alignment')?.value ?? 32);
  const ends = tensors.map((t) => t.offset).concat(reader.buffer.length - start).sort((a, b) => a - b);
  for (const tensor of tensors) {  // up to the next tensor: padding comes along
    const end = ends.find((offset) => offset > tensor.offset) ?? tensor.offset;
    tensor.data = reader.buffer.subarray(start + tensor.offset, start + end);
  }
  return {metadata, tensors};
}

export function writeGguf(path, {metadata, tensors}) {
  const alignment = metadata.get('general.alignment')?.value ?? 32;
  const header = new Writer();
  header.bytes(Buffer.from('GGUF'));
  header.u32(3);
  header.u64(tensors.length);
  header.u64(metadata.size);
  for (const [key, {type, value}] of metadata) {
    header.string(key);
    header.u32(type);
    header.value(type, value);
  }
  let offset = 0;
  for (const tensor of tensors) {
    header.string(tensor.name);
    header.u32(tensor.shape.length);
    for (const n of tensor.shape) header.u64(n);
    header.u32(tensor.type);
    header.u64(offset);
    offset += rounded(tensor.data.length, alignment);
  }
  const padded = (buffer, at) => [buffer, Buffer.alloc(rounded(at, alignment) - at)];
  const parts = padded(Buffer.concat(header.parts), header.length);
  for (const tensor of tensors) parts.push(...padded(tensor.data, tensor.data.length));
  fs.writeFileSync(path, Buffer.concat(parts));
}
