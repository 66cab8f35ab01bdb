// Compares this program's template engine with npm's @huggingface/jinja: every template of the installed
// @lenml/tokenizer-* packages and those of features.mjs, over the conversations of conversations.mjs. Where the two
// differ, deviations.mjs must say why (the other engine departs from Python's Jinja, which models were trained
// with) and what Python gives.
// Usage: main.mjs RENDER_CASES
import {spawnSync} from 'node:child_process';
import fs from 'node:fs';
import {Template} from '@huggingface/jinja';
import {conversations} from './conversations.mjs';
import {deviations} from './deviations.mjs';
import {features} from './features.mjs';

const now = Date.UTC(2026, 10, 29, 12) / 1000;

function installedTemplates() {
  const folder = new URL('node_modules/@lenml/', import.meta.url);
  const text = (token) => (typeof token === 'string' ? token : token?.content);
  const found = [];
  for (const name of fs.readdirSync(folder).filter((n) => n.startsWith('tokenizer-')).sort()) {
    const config = JSON.parse(fs.readFileSync(new URL(`${name}/models/tokenizer_config.json`, folder)));
    const trusted = {};
    for (const key of ['bos_token', 'eos_token', 'unk_token', 'pad_token']) {
      if (text(config[key]) !== undefined) trusted[key] = text(config[key]);
    }
    const templates = Array.isArray(config.chat_template)
      ? config.chat_template : [{name: 'default', template: config.chat_template}];
    for (const {name: kind, template} of templates) {
      if (!template) throw new Error(`${name} has no chat template any more: package.json need not name it`);
      found.push({name: `${name.slice('tokenizer-'.length)}${kind === 'default' ? '' : ` (${kind})`}`, template, trusted});
    }
  }
  return found;
}

function cases() {
  const all = [];
  for (const {name, template, trusted} of installedTemplates()) {
    for (const {name: conversation, ...given} of conversations) {
      all.push({name: `${name}: ${conversation}`, template, trusted, now, variables: {add_generation_prompt: true, ...given}});
    }
  }
  for (const {name, template, ...variables} of features) {
    all.push({name: `feature: ${name}`, template, trusted: {}, now, variables});
  }
  return all;
}

function theirs({template, trusted, variables}) {
  try {
    return {text: new Template(template).render({...trusted, ...structuredClone(variables)})};
  } catch (error) {
    return {error: String(error.message)};
  }
}

function ours(program, all) {
  const input = all.map((c) => JSON.stringify(c)).join('\n');
  const run = spawnSync(program, {input, encoding: 'utf8', maxBuffer: 1 << 30, env: {...process.env, TZ: 'UTC'}});
  if (run.status !== 0) throw new Error(`${program}: status ${run.status} ${run.signal ?? ''}\n${run.stderr}`);
  return run.stdout.trimEnd().split('\n').map((line) => JSON.parse(line));
}

function show({text, error}) {
  if (error !== undefined) return `error: ${error}`;
  return JSON.stringify(text.length > 2000 ? `${text.slice(0, 2000)}...` : text);
}

const all = cases();
const answers = ours(process.argv[2], all);
const unused = new Set(deviations.keys());
let same = 0;
let bothRefuse = 0;
let explained = 0;
const failures = [];
for (const [i, one] of all.entries()) {
  const mine = answers[i];
  const other = theirs(one);
  if (mine.text !== undefined && mine.text === other.text) {
    same++;
  } else if (mine.error !== undefined && other.error !== undefined) {
    bothRefuse++;
  } else {
    const deviation = deviations.get(one.name);
    unused.delete(one.name);
    const right = deviation && (deviation.refuses ? mine.error?.includes(deviation.refuses) : mine.text === deviation.gives);
    if (right) {
      explained++;
    } else {
      failures.push(`${one.name}\n  ours:   ${show(mine)}\n  theirs: ${show(other)}`);
    }
  }
}
for (const name of unused) failures.push(`${name}: deviations.mjs lists it, but there is no difference`);
console.log(`${all.length} renderings: ${same} equal, ${bothRefuse} refused by both, ${explained} differ for a stated reason`);
for (const failure of failures) console.log(`\nFAILED ${failure}`);
process.exit(failures.length > 0 || same < 100 ? 1 : 0);
