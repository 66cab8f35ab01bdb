// npm's openai: responses.
import test from 'node:test';
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { checkTale, checkWeather, tale, weather } from './openai.mjs';

const model = 'tales';
const input = 'Tell me a tale about a fox.';
const tools = [{ type: 'function', name: 'get_weather', description: 'The weather', parameters: weather, strict: true }];

export function responsesTests(context) {
  const client = () => new OpenAI({ baseURL: `${context.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const respond = (more) => client().responses.create({ model, input, max_output_tokens: 24, ...more });

  test('responses: whole and streamed is the same', async () => {
    const whole = await respond({ instructions: 'You tell tales.' });
    assert.equal(whole.status, 'incomplete');
    assert.equal(whole.incomplete_details.reason, 'max_output_tokens');
    assert.ok(whole.output_text.length > 20);
    assert.equal(whole.usage.output_tokens, 24);

    const stream = await respond({ instructions: 'You tell tales.', stream: true });
    const events = [];
    for await (const event of stream) events.push(event);
    assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
    const text = events.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join('');
    assert.equal(text, whole.output_text);
    assert.deepEqual([...new Set(events.map((e) => e.type))], [
      'response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added',
      'response.output_text.delta', 'response.output_text.done', 'response.content_part.done',
      'response.output_item.done', 'response.incomplete']);
    assert.equal(events.at(-1).response.output[0].content[0].text, text);
  });

  test('responses: the stream helper puts a response together', async () => {
    const whole = await respond({});
    const final = await client().responses.stream({ model, input, max_output_tokens: 24 }).finalResponse();
    assert.equal(final.output[0].content[0].text, whole.output_text);
  });

  test('responses: goes on from a response before, as with the whole conversation', async () => {
    const first = await respond({ instructions: 'You tell tales.' });
    const next = { input: 'And then?', instructions: 'You are brief.' };
    const second = await respond({ ...next, previous_response_id: first.id });
    assert.equal(second.previous_response_id, first.id);
    const items = [{ role: 'user', content: input }, ...first.output, { role: 'user', content: 'And then?' }];
    const whole = await respond({ ...next, input: items });
    assert.equal(second.output_text, whole.output_text);
    assert.equal(second.usage.input_tokens, whole.usage.input_tokens);
    const unkept = await respond({ store: false });
    await assert.rejects(respond({ ...next, previous_response_id: unkept.id }),
      (e) => e instanceof OpenAI.NotFoundError && e.param === 'previous_response_id');
  });

  test('responses: tools and their outputs', async () => {
    const options = { tools, tool_choice: 'required', parallel_tool_calls: false, max_output_tokens: 200 };
    const whole = await respond(options);
    const calls = whole.output.filter((item) => item.type === 'function_call');
    assert.equal(calls.length, 1);
    assert.equal(whole.status, 'completed');
    checkWeather(JSON.parse(calls[0].arguments));

    const final = await client().responses.stream({ model, input, ...options }).finalResponse();
    const [streamed] = final.output.filter((item) => item.type === 'function_call');
    assert.equal(streamed.arguments, calls[0].arguments);

    const output = { type: 'function_call_output', call_id: calls[0].call_id, output: 'sunny' };
    const kept = await respond({ tools, previous_response_id: whole.id, input: [output] });
    const told = await respond({ tools, input: [{ role: 'user', content: input }, ...whole.output, output] });
    assert.equal(kept.output_text, told.output_text);
  });

  test('responses: JSON of a schema', async () => {
    const format = { type: 'json_schema', name: 'tale', schema: tale, strict: true };
    const whole = await respond({ text: { format }, max_output_tokens: 100 });
    assert.equal(whole.status, 'completed');
    checkTale(JSON.parse(whole.output_text));
  });

  test('responses: tools that others run are left out, unless there is nothing else', async () => {
    const hosted = { type: 'web_search' };
    const both = await respond({ tools: [hosted, ...tools] });
    const ours = await respond({ tools });
    assert.equal(both.usage.input_tokens, ours.usage.input_tokens);
    await assert.rejects(respond({ tools: [hosted] }), OpenAI.BadRequestError);
  });

  test('responses: errors', async () => {
    await assert.rejects(respond({ input: [{ type: 'input_image' }] }), OpenAI.BadRequestError);
    await assert.rejects(respond({ input: [] }), (e) => e.param === 'input');
    await assert.rejects(respond({ background: true }), (e) => e.param === 'background');
  });
}
