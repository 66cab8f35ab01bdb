// npm's @anthropic-ai/sdk.
import test from 'node:test';
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { metric, until } from './server.mjs';
import { checkWeather, weather } from './openai.mjs';

const model = 'tales';
const messages = [{ role: 'user', content: 'Tell me a tale about a fox.' }];
const tools = [{ name: 'get_weather', description: 'The weather in a city', input_schema: weather }];

export function anthropicTests(context) {
  const client = () => new Anthropic({ baseURL: context.url, apiKey: 'none', maxRetries: 0 });
  const ask = (more) => client().messages.create({ model, messages, max_tokens: 24, system: 'You tell tales.', ...more });

  test('anthropic: models', async () => {
    const list = await client().models.list();
    assert.deepEqual(list.data.map((m) => m.id), ['tales']);
    assert.equal((await client().models.retrieve('tales')).type, 'model');
  });

  test('anthropic: messages, whole and streamed, are the same', async () => {
    const whole = await ask({});
    assert.equal(whole.role, 'assistant');
    assert.equal(whole.stop_reason, 'max_tokens');
    assert.equal(whole.usage.output_tokens, 24);
    assert.ok(whole.content[0].text.length > 20);
    const types = [];
    const stream = client().messages.stream({ model, messages, max_tokens: 24, system: 'You tell tales.' });
    stream.on('streamEvent', (event) => types.push(event.type));
    const final = await stream.finalMessage();
    assert.deepEqual(final.content, whole.content);
    assert.equal(final.stop_reason, 'max_tokens');
    assert.equal(final.usage.output_tokens, 24);
    assert.deepEqual([...new Set(types)].filter((t) => t !== 'ping'), [
      'message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta',
      'message_stop']);
  });

  test('anthropic: systems in blocks, without the line that is another one each time', async () => {
    const plain = await ask({});
    const blocks = await ask({
      system: [
        { type: 'text', text: `x-anthropic-billing-header: cch=${Math.random()};` },
        { type: 'text', text: 'You tell tales.', cache_control: { type: 'ephemeral' } },
      ],
    });
    assert.deepEqual(blocks.content, plain.content);
  });

  test('anthropic: counts tokens', async () => {
    const { input_tokens } = await client().messages.countTokens({ model, messages, system: 'You tell tales.' });
    const { usage } = await ask({});
    assert.equal(usage.input_tokens + usage.cache_read_input_tokens, input_tokens);
  });

  test('anthropic: stop sequences', async () => {
    const { text } = (await ask({})).content[0];
    const word = text.split(' ')[5];
    const stopped = await ask({ stop_sequences: [word] });
    assert.equal(stopped.stop_reason, 'stop_sequence');
    assert.equal(stopped.stop_sequence, word);
    assert.equal(stopped.content[0].text, text.slice(0, text.indexOf(word)));
  });

  test('anthropic: an answer that is begun goes on', async () => {
    const { text } = (await ask({})).content[0];
    const begun = text.split(' ').slice(0, 6).join(' ');
    const rest = await ask({ messages: [...messages, { role: 'assistant', content: begun }] });
    assert.equal(begun + rest.content[0].text.slice(0, text.length - begun.length), text);
  });

  test('anthropic: tools and their results', async () => {
    const options = { tools, tool_choice: { type: 'any', disable_parallel_tool_use: true }, max_tokens: 200 };
    const whole = await ask(options);
    assert.equal(whole.stop_reason, 'tool_use');
    const [call] = whole.content.filter((block) => block.type === 'tool_use');
    assert.equal(call.name, 'get_weather');
    checkWeather(call.input);
    const final = await client().messages.stream({ model, messages, system: 'You tell tales.', ...options }).finalMessage();
    assert.deepEqual(final.content.find((block) => block.type === 'tool_use').input, call.input);

    const result = { type: 'tool_result', tool_use_id: call.id, content: [{ type: 'text', text: 'sunny' }] };
    const next = await ask({
      tools,
      messages: [...messages, { role: 'assistant', content: whole.content },
                 { role: 'user', content: [result, { type: 'text', text: 'And now?' }] }],
    });
    assert.ok(next.content.length > 0);
    const error = { ...result, content: 'no such city', is_error: true };
    await ask({ tools, messages: [...messages, { role: 'assistant', content: whole.content }, { role: 'user', content: [error] }] });
  });

  test('anthropic: thinking may be asked for and comes back in conversations', async () => {
    const thought = [{ type: 'thinking', thinking: 'A fox, then.', signature: '' }, { type: 'text', text: 'Well:' }];
    const answer = await ask({
      messages: [...messages, { role: 'assistant', content: thought }, { role: 'user', content: 'Go on.' }],
      thinking: { type: 'enabled', budget_tokens: 1024 },
    });
    assert.ok(answer.usage.input_tokens + answer.usage.cache_read_input_tokens > 30);
  });

  test('anthropic: errors', async () => {
    const refused = (more, pattern) => assert.rejects(ask(more), (e) => {
      assert.ok(e instanceof Anthropic.BadRequestError, String(e));
      assert.equal(e.error.type, 'error');
      assert.equal(e.error.error.type, 'invalid_request_error');
      assert.match(e.error.error.message, pattern);
      return true;
    });
    await refused({ temperature: -1 }, /temperature/);
    await refused({ messages: [{ role: 'user', content: [{ type: 'image', source: {} }] }] }, /only text/);
    await refused({ messages: [{ role: 'user', content: 'fox '.repeat(2000) }] }, /prompt is too long: \d+ tokens > 1023 maximum/);
    await refused({ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, /does not have/);
    await assert.rejects(client().post('/v1/messages/batches', { body: {} }),
      (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === 'not_found_error');
  });

  test('anthropic: an abort stops the computation at once', async () => {
    const cancelled = await metric(context.url, 'answers_cancelled_total');
    const stream = client().messages.stream({ model, messages, max_tokens: 900, system: 'You tell tales.' });
    await new Promise((done) => stream.once('text', done));
    stream.abort();
    await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
    await until('the answer to be cancelled or at its end', async () =>
      (await metric(context.url, 'requests_active')) === 0);
    assert.ok((await metric(context.url, 'answers_cancelled_total')) >= cancelled);
  });
}
