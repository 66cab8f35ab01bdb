// Real clients against a real server. Usage: node main.mjs REDLITE MODEL
import test, { after, before } from 'node:test';
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { metric, startServer, until } from './server.mjs';
import { openaiTests } from './openai.mjs';
import { responsesTests } from './responses.mjs';
import { anthropicTests } from './anthropic.mjs';
import { hostileTests } from './hostile.mjs';
import { restartTests } from './restart.mjs';
import { vercelTests } from './vercel.mjs';

const [redlite, model] = process.argv.slice(2);
const context = {};

before(async () => {
  // Greedy unless a test says otherwise: answers can then be compared.
  context.server = await startServer(redlite, model, ['--context', '1024', '--temp', '0', '--name', 'tales']);
  context.url = context.server.url;
});
after(async () => {
  assert.equal(await context.server.stop(), 0, context.server.log);
});

openaiTests(context);
responsesTests(context);
anthropicTests(context);
vercelTests(context);
hostileTests(context);
restartTests({ redlite, model });

test('keys: without one nothing but the page and /health, in each API\'s own words', async () => {
  process.env.REDLITE_API_KEY = 'from-the-environment';
  const server = await startServer(redlite, model, ['--api-key', 'secret']);
  delete process.env.REDLITE_API_KEY;
  try {
    assert.equal((await fetch(`${server.url}/health`)).status, 200);
    for (const path of ['/v1/models', '/metrics', '/props', '/cache', '/cache/events', '/v1/models/tales']) {
      assert.equal((await fetch(server.url + path)).status, 401, path);
      for (const key of ['secret', 'from-the-environment']) {
        const controller = new AbortController();
        const headers = { authorization: `Bearer ${key}` };
        const { status } = await fetch(server.url + path, { headers, signal: controller.signal });
        controller.abort();
        assert.equal(status, path.endsWith('tales') ? 404 : 200, path);
      }
    }
    const { default: OpenAI } = await import('openai');
    const { default: Anthropic } = await import('@anthropic-ai/sdk');
    const messages = [{ role: 'user', content: 'Hello' }];
    const openai = (apiKey) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
    const anthropic = (apiKey) => new Anthropic({ baseURL: server.url, apiKey, maxRetries: 0 });
    await assert.rejects(openai('wrong').chat.completions.create({ model: 'm', messages }), OpenAI.AuthenticationError);
    await assert.rejects(anthropic('wrong').messages.create({ model: 'm', messages, max_tokens: 1 }),
      (e) => e instanceof Anthropic.AuthenticationError && e.error.error.type === 'authentication_error');
    await openai('secret').chat.completions.create({ model: 'm', messages, max_tokens: 1 });
    await anthropic('secret').messages.create({ model: 'm', messages, max_tokens: 1 });
  } finally {
    await server.stop();
  }
});

/** Begins a stream, and what it says in the end. */
async function longStream(url) {
  const body = JSON.stringify({ prompt: 'Once', max_tokens: 300, ignore_eos: true, stream: true });
  const response = await fetch(`${url}/v1/completions`, { method: 'POST', body });
  return { text: response.text() };
}

test('a server that is asked to end lets answers end first', async () => {
  const server = await startServer(redlite, model, ['--grace', '30']);
  const { text } = await longStream(server.url);
  const code = server.stop();
  await until('new requests to be refused', async () => {
    const body = JSON.stringify({ prompt: 'Once', max_tokens: 1 });
    const status = await fetch(`${server.url}/v1/completions`, { method: 'POST', body }).then((r) => r.status, () => 0);
    return status === 503 || status === 0;
  });
  assert.match(await text, /\[DONE\]\n\n$/);
  assert.equal(await code, 0, server.log);
});

test('a server that is asked to end at once says so to those who wait', async () => {
  const server = await startServer(redlite, model, ['--grace', '0']);
  const { text } = await longStream(server.url);
  const code = server.stop();
  const said = await text;
  assert.ok(/shutting down/.test(said) || /\[DONE\]/.test(said), said.slice(-300));
  assert.equal(await code, 0, server.log);
});

test('a server that others can reach wants a key', async () => {
  await assert.rejects(startServer(redlite, model, ['--host', '0.0.0.0']), /can be reached from other machines/);
  const server = await startServer(redlite, model, ['--host', '0.0.0.0', '--no-api-key']);
  await server.stop();
  await assert.rejects(startServer(redlite, model, ['--no-api-key', '--api-key', 'x']), /contradicts/);
});

test('a template that refuses a conversation says why, and no other prompt is made of it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'redlite-template-'));
  const template = join(folder, 'strict.jinja');
  await writeFile(template, `{% for m in messages %}{% if m.role == 'system' %}
    {{ raise_exception('System role not supported') }}{% endif %}{{ m.content }}{% endfor %}`);
  const server = await startServer(redlite, model, [], template);
  try {
    const post = (messages, stream) => fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST', body: JSON.stringify({ messages, stream, max_tokens: 1 }),
    });
    const user = { role: 'user', content: 'Hello' };
    for (const stream of [false, true]) {
      const refused = await post([{ role: 'system', content: 'Be brief.' }, user], stream);
      assert.equal(refused.status, 400);
      const { error } = await refused.json();
      assert.match(error.message, /^strict\.jinja.*System role not supported/);
      assert.equal(error.param, 'messages');
      assert.equal((await post([user], stream)).status, 200);
    }
    assert.equal(await metric(server.url, 'answers_failed_total'), 0);
  } finally {
    await server.stop();
    await rm(folder, { recursive: true });
  }
});

test('every switch does what it says', async () => {
  const server = await startServer(redlite, model, ['--context', '300', '--parallel', '3', '--name', 'other',
    '--cache-mib', '4', '--prefetch', 'off', '--state-mib', '0', '--temp', '1', '--seed', '5', '--top-k', '7']);
  try {
    const props = await (await fetch(`${server.url}/props`)).json();
    assert.deepEqual([props.model, props.context, props.parallel], ['other', 300, 3]);
    assert.deepEqual([props.defaults.temperature, props.defaults.top_k], [1, 7]);
    const ask = async (more = {}) => {
      const body = JSON.stringify({ prompt: 'Once upon a time there was a king who', max_tokens: 16, ...more });
      const { choices, usage } = await (await fetch(`${server.url}/v1/completions`, { method: 'POST', body })).json();
      return { text: choices[0].text, cached: usage.prompt_tokens_details.cached_tokens };
    };
    const first = await ask();
    assert.deepEqual(await ask(), first);  // --seed, and no state is kept
    assert.equal(first.cached, 0);
    assert.notEqual((await ask({ seed: 6 })).text, first.text);
    assert.ok((await metric(server.url, 'expert_misses_total')) > 0);
    assert.equal(await metric(server.url, 'expert_prefetches_total'), 0);
  } finally {
    await server.stop();
  }
});

test('a page of another site cannot use the server', async () => {
  const body = JSON.stringify({ prompt: 'Once', max_tokens: 1 });
  const post = (headers) => fetch(`${context.url}/v1/completions`, { method: 'POST', body, headers });
  assert.equal((await post({})).status, 200);
  assert.equal((await post({ origin: new URL(context.url).origin })).status, 200);
  assert.equal((await post({ origin: 'http://evil.example' })).status, 403);
  assert.equal((await post({ origin: 'null' })).status, 403);
  const preflight = await fetch(`${context.url}/v1/completions`, { method: 'OPTIONS' });
  assert.equal(preflight.status, 405);
  assert.equal(preflight.headers.get('access-control-allow-origin'), null);
});

test('tokens there and back', async () => {
  const post = async (path, body) =>
    (await fetch(context.url + path, { method: 'POST', body: JSON.stringify(body) })).json();
  const text = 'Once upon a time, Zoë said: „naïve“ 🙂';
  const { tokens } = await post('/tokenize', { content: text });
  assert.deepEqual(await post('/detokenize', { tokens }), { content: text });
  const special = (await post('/tokenize', { content: '<|im_end|>' })).tokens;
  assert.equal(special.length, 1);
  assert.ok((await post('/tokenize', { content: '<|im_end|>', parse_special: false })).tokens.length > 1);
  assert.match((await post('/detokenize', { tokens: [1 << 29] })).error.message, /no id from 0 to/);
});

test('metrics and the cache view count', async () => {
  const before = await metric(context.url, 'answer_tokens_total');
  const frames = await fetch(`${context.url}/cache/events`);
  const reader = frames.body.getReader();
  const next = async () => JSON.parse(new TextDecoder().decode((await reader.read()).value).replace(/^data: /, ''));
  const first = await next();
  const body = JSON.stringify({ prompt: 'Once upon a time', max_tokens: 12, ignore_eos: true });
  await fetch(`${context.url}/v1/completions`, { method: 'POST', body });
  assert.equal(await metric(context.url, 'answer_tokens_total'), before + 12);
  let frame = first;
  await until('a frame with the answer', async () => {
    frame = await next();
    return frame.answer_tokens >= first.answer_tokens + 12;
  });
  await reader.cancel();
  assert.ok(frame.frame > first.frame);
  assert.ok(frame.hits > first.hits);
  assert.equal(frame.rows.length, frame.layers);
  assert.ok(frame.rows.every((row) => row.length === frame.experts && /^[.rhmp]*$/.test(row)));
});
