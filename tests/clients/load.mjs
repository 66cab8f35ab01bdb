// Many clients at once: streaming, whole, aborted and slow-reading. Every answer that was finished must be the one
// that a client alone gets; memory must stay flat, nobody may wait for ever, and a full queue must say so.
// Usage: node load.mjs REDLITE MODEL [--seconds N] [--clients N]
import assert from 'node:assert/strict';
import http from 'node:http';
import { parseArgs } from 'node:util';
import { metric, startServer, until } from './server.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seconds: { type: 'string', default: '15' }, clients: { type: 'string', default: '64' } },
});
const [redlite, model] = positionals;
const seconds = Number(values.seconds), nClients = Number(values.clients);

// The same numbers each time.
let state = 1;
function random(n) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
}

const subjects = ['a fox', 'a king', 'the sea', 'two brothers', 'an old woman', 'a golden bird', 'a tailor', 'the moon'];
const prompts = subjects.map((s, i) => ({
  messages: [
    { role: 'system', content: 'You tell tales.' },
    { role: 'user', content: `Tell me a tale about ${s}. `.repeat(1 + (i % 3)) },
  ],
  max_tokens: 16 + 8 * (i % 4),
  ...(i % 2 ? { temperature: 0.9, seed: i } : { temperature: 0 }),
}));

/** Sends a request and passes on the pieces of its answer; `onBytes` may return a time to wait, or 'abort'. */
function post(url, agent, body, onBytes = () => 0) {
  return new Promise((resolve, reject) => {
    const request = http.request(`${url}/v1/chat/completions`, { method: 'POST', agent }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (bytes) => {
        text += bytes;
        const what = onBytes(text);
        if (what === 'abort') {
          request.destroy();
          resolve({ aborted: true });
        } else if (what > 0) {
          response.pause();
          setTimeout(() => response.resume(), what);
        }
      });
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, text }));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(JSON.stringify(body));
  });
}

function streamedText(text) {
  const lines = text.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6));
  assert.equal(lines.at(-1), '[DONE]', text);
  return lines.slice(0, -1).map((line) => JSON.parse(line).choices[0]?.delta.content ?? '').join('');
}

const parallel = 4, queue = 24;
const server = await startServer(redlite, model, [
  '--context', '512', '--parallel', String(parallel), '--queue', String(queue), '--state-mib', '64']);
const { url } = server;
const alone = [];
const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });
try {
  for (const prompt of prompts) {
    const answer = await post(url, agent, prompt);
    assert.equal(answer.status, 200, answer.text);
    alone.push(JSON.parse(answer.text).choices[0].message.content);
  }

  const counts = { whole: 0, streamed: 0, slow: 0, aborted: 0, refused: 0 };
  const memory = [];
  const end = Date.now() + seconds * 1000;
  let longest = 0;
  async function client(number) {
    while (Date.now() < end) {
      const i = random(prompts.length), kind = random(10), begun = Date.now();
      const stream = kind >= 3;
      let waits = 0;
      const onBytes =
        kind === 9 ? (text) => (text.length > 1000 ? 'abort' : 0) :
        kind === 8 ? () => (waits++ < 5 ? 100 : 0) : undefined;
      if (kind === 2 && random(2)) {
        // Leaves while it waits, be it in the queue or for the answer.
        const request = http.request(`${url}/v1/chat/completions`, { method: 'POST', agent });
        request.on('error', () => {});
        request.end(JSON.stringify(prompts[i]));
        await new Promise((done) => setTimeout(done, 1 + random(150)));
        request.destroy();
        ++counts.aborted;
        continue;
      }
      const answer = await post(url, agent, { ...prompts[i], stream }, onBytes);
      longest = Math.max(longest, Date.now() - begun);
      if (answer.aborted) {
        ++counts.aborted;
      } else if (answer.status === 429 || answer.status === 503) {
        ++counts.refused;
        assert.match(answer.headers['retry-after'] ?? '', /^[1-9]\d*$/);
        assert.ok(JSON.parse(answer.text).error.message);
        await new Promise((done) => setTimeout(done, 100 + random(200)));
      } else {
        assert.equal(answer.status, 200, answer.text);
        const text = stream ? streamedText(answer.text) : JSON.parse(answer.text).choices[0].message.content;
        assert.equal(text, alone[i], `client ${number}, prompt ${i}`);
        ++counts[kind === 8 ? 'slow' : stream ? 'streamed' : 'whole'];
      }
    }
  }
  const watch = setInterval(async () => memory.push(await metric(url, 'resident_memory_bytes').catch(() => NaN)), 1000);
  await Promise.all(Array.from({ length: nClients }, (_, number) => client(number)));
  clearInterval(watch);

  // Nothing is left over.
  await until('all slots to be free', async () =>
    (await metric(url, 'requests_active')) === 0 && (await metric(url, 'requests_queued')) === 0);
  const last = await post(url, agent, prompts[0]);
  assert.equal(JSON.parse(last.text).choices[0].message.content, alone[0]);

  console.log(`${nClients} clients, ${seconds} s:`, counts, `longest ${longest} ms,`,
    `memory ${memory.map((bytes) => (bytes / 2 ** 20).toFixed(0)).join(' ')} MiB`);
  for (const kind of ['whole', 'streamed', 'slow', 'aborted']) assert.ok(counts[kind] > 0, `no ${kind} ones`);
  assert.ok(counts.refused > 0, 'the queue was never full');
  // Flat: what the last third of the time needs is what the second third did, but for the allocator's whims.
  const third = Math.floor(memory.length / 3);
  const most = (part) => Math.max(...part.filter(Number.isFinite));
  assert.ok(most(memory.slice(2 * third)) < most(memory.slice(third, 2 * third)) + 24 * 2 ** 20, 'memory grows');
  assert.ok(longest < 30_000, 'an answer took more than 30 seconds');
} finally {
  agent.destroy();
  const code = await server.stop();
  assert.equal(code, 0, server.log);
}
