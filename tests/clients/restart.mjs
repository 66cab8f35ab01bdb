// A conversation of about 4,000 tokens survives its server.
import test from 'node:test';
import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { metric, startServer, until } from './server.mjs';

const tale = 'The fox went into the deep wood, and there it met an old woman who had lost her golden ring. ';
const opening = [
  { role: 'system', content: 'You tell tales.' },
  { role: 'user', content: tale.repeat(160) + 'What did the fox say?' },
];

/** All that an answer is made of, to the last bit of its logits. */
async function ask(url, messages, max_tokens = 40) {
  const body = JSON.stringify({ messages, max_tokens, temperature: 0, logprobs: true, top_logprobs: 3 });
  const response = await fetch(`${url}/v1/chat/completions`, { method: 'POST', body });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  const { message, logprobs } = answer.choices[0];
  return { message, logprobs, usage: answer.usage, read: answer.timings.prompt_n };
}

export function restartTests({ redlite, model }) {
  for (const signal of ['SIGTERM', 'SIGKILL']) {
    test(`restart after ${signal}: the next turn reads what is new and gets the answer of a cold server`, async () => {
      const folder = await mkdtemp(join(tmpdir(), 'redlite-states-'));
      const start = (...more) => startServer(redlite, model, ['--context', '4096', ...more]);
      let server;
      try {
        server = await start('--state-dir', folder);
        const first = await ask(server.url, opening);
        assert.ok(first.usage.prompt_tokens > 3500, `only ${first.usage.prompt_tokens} tokens`);
        const longer = [...opening, first.message, { role: 'user', content: 'And then?' }];
        if (signal === 'SIGTERM') {
          assert.equal(await server.stop(), 0, server.log);
        } else {
          // What rests is written soon.
          await until('a state on disk', async () => (await metric(server.url, 'states{place="disk"}')) > 0, 15);
          await server.kill();
        }

        server = await start('--state-dir', folder);
        const warm = await ask(server.url, longer);
        const added = warm.usage.prompt_tokens - first.usage.prompt_tokens - first.usage.completion_tokens;
        assert.ok(warm.read <= added + 2, `${warm.read} tokens were read, ${added} of them new`);
        assert.equal(warm.usage.prompt_tokens_details.cached_tokens, warm.usage.prompt_tokens - warm.read);
        assert.equal(await metric(server.url, 'prompt_tokens_read_total'), warm.read);
        // The same turn once more, its answer unlike what was kept: back to the boundary, not to the beginning.
        const other = await ask(server.url, [...opening, { role: 'assistant', content: 'Nothing.' }, longer.at(-1)]);
        assert.ok(other.read < 100, `${other.read} tokens were read`);
        await server.stop();
        assert.ok((await readdir(folder)).every((name) => name.endsWith('.rlstate')));

        server = await start();
        const cold = await ask(server.url, longer);
        assert.equal(cold.read, cold.usage.prompt_tokens);
        assert.deepEqual(warm.message, cold.message);
        assert.deepEqual(warm.logprobs, cold.logprobs);
      } finally {
        await server?.kill();
        await rm(folder, { recursive: true });
      }
    });
  }
}
