// npm's openai: chat and completions.
import test from 'node:test';
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { metric, until } from './server.mjs';

export const weather = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 12 }, unit: { enum: ['celsius', 'fahrenheit'] } },
  required: ['city', 'unit'],
  additionalProperties: false,
};
export const tale = {
  type: 'object',
  properties: { hero: { type: 'string', maxLength: 12 }, age: { type: 'integer', minimum: 1, maximum: 99 } },
  required: ['hero', 'age'],
  additionalProperties: false,
};

export function checkWeather(value) {
  assert.deepEqual(Object.keys(value), ['city', 'unit']);
  assert.equal(typeof value.city, 'string');
  assert.ok(['celsius', 'fahrenheit'].includes(value.unit));
}
export function checkTale(value) {
  assert.deepEqual(Object.keys(value), ['hero', 'age']);
  assert.equal(typeof value.hero, 'string');
  assert.ok(Number.isInteger(value.age) && value.age >= 1 && value.age <= 99);
}

const model = 'tales';
const messages = [
  { role: 'system', content: 'You tell tales.' },
  { role: 'user', content: 'Tell me a tale about a fox.' },
];
const tools = [
  { type: 'function', function: { name: 'get_weather', description: 'The weather in a city', parameters: weather } },
  { type: 'function', function: { name: 'get_time', parameters: { type: 'object', properties: {} } } },
];

export function openaiTests(context) {
  const client = () => new OpenAI({ baseURL: `${context.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const chat = (more) => client().chat.completions.create({ model, messages, max_tokens: 24, ...more });

  test('openai: models', async () => {
    const list = await client().models.list();
    assert.deepEqual(list.data.map((m) => m.id), ['tales']);
    assert.equal((await client().models.retrieve('tales')).object, 'model');
    await assert.rejects(client().models.retrieve('other'), OpenAI.NotFoundError);
  });

  test('openai: chat, whole and streamed, is the same', async () => {
    const whole = await chat({});
    const { message, finish_reason } = whole.choices[0];
    assert.equal(whole.object, 'chat.completion');
    assert.equal(message.role, 'assistant');
    assert.ok(message.content.length > 20);
    assert.equal(finish_reason, 'length');
    assert.equal(whole.usage.completion_tokens, 24);
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + 24);

    const stream = await chat({ stream: true, stream_options: { include_usage: true } });
    let text = '', chunks = 0, usage = null, reason = null;
    for await (const chunk of stream) {
      ++chunks;
      text += chunk.choices[0]?.delta?.content ?? '';
      reason = chunk.choices[0]?.finish_reason ?? reason;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, message.content);
    assert.ok(chunks > 10);
    assert.equal(reason, 'length');
    assert.deepEqual({ ...usage, prompt_tokens_details: null }, { ...whole.usage, prompt_tokens_details: null });
  });

  test('openai: the stream helper puts an answer together', async () => {
    const whole = await chat({});
    const runner = client().chat.completions.stream({ model, messages, max_tokens: 24 });
    assert.equal(await runner.finalContent(), whole.choices[0].message.content);
  });

  test('openai: stop', async () => {
    const { content } = (await chat({})).choices[0].message;
    const word = content.split(' ')[5];
    const stopped = (await chat({ stop: ['never said', word] })).choices[0];
    assert.equal(stopped.finish_reason, 'stop');
    assert.equal(stopped.message.content, content.slice(0, content.indexOf(word)));
  });

  test('openai: seeds', async () => {
    const say = async (seed) => (await chat({ seed, temperature: 1.5 })).choices[0].message.content;
    assert.equal(await say(7), await say(7));
    assert.notEqual(await say(7), await say(8));
  });

  test('openai: logprobs', async () => {
    const whole = await chat({ logprobs: true, top_logprobs: 3 });
    const { content } = whole.choices[0].logprobs;
    assert.equal(content.map((t) => t.token).join(''), whole.choices[0].message.content);
    for (const token of content) {
      assert.equal(token.top_logprobs.length, 3);
      assert.equal(token.top_logprobs[0].token, token.token);  // greedy
      assert.ok(token.logprob < 0 && token.top_logprobs[1].logprob <= token.logprob);
      assert.equal(new TextDecoder().decode(new Uint8Array(token.bytes)), token.token);
    }
    const streamed = [];
    for await (const chunk of await chat({ logprobs: true, top_logprobs: 3, stream: true }))
      streamed.push(...(chunk.choices[0].logprobs?.content ?? []));
    assert.deepEqual(streamed, content);
  });

  test('openai: completions', async () => {
    const request = { model, prompt: 'Once upon a time', max_tokens: 16, logprobs: 2 };
    const whole = await client().completions.create(request);
    const [choice] = whole.choices;
    assert.equal(choice.logprobs.tokens.join(''), choice.text);
    assert.equal(choice.logprobs.text_offset[1], choice.logprobs.tokens[0].length);
    let text = '';
    for await (const chunk of await client().completions.create({ ...request, stream: true }))
      text += chunk.choices[0]?.text ?? '';
    assert.equal(text, choice.text);
    const { tokens } = await (await fetch(`${context.url}/tokenize`, {
      method: 'POST', body: JSON.stringify({ content: request.prompt }),
    })).json();
    const same = await client().completions.create({ ...request, prompt: tokens });
    assert.equal(same.choices[0].text, choice.text);
  });

  test('openai: JSON, of any form and of a schema', async () => {
    const any = await chat({ response_format: { type: 'json_object' }, max_tokens: 200 });
    if (any.choices[0].finish_reason === 'stop')
      assert.equal(typeof JSON.parse(any.choices[0].message.content), 'object');
    for (const temperature of [0, 1.5]) {
      const format = { type: 'json_schema', json_schema: { name: 'tale', schema: tale, strict: true } };
      const whole = await chat({ response_format: format, temperature, seed: 3, max_tokens: 100 });
      assert.equal(whole.choices[0].finish_reason, 'stop');
      checkTale(JSON.parse(whole.choices[0].message.content));
    }
    const odd = { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'string', not: { const: 'a' } } } };
    await assert.rejects(chat({ response_format: odd }), (e) => e instanceof OpenAI.BadRequestError && /not/.test(e.message));
  });

  test('openai: tools beside a schema: an answer is a call or JSON', async () => {
    const format = { type: 'json_schema', json_schema: { name: 'tale', schema: tale, strict: true } };
    const finished = new Set();
    for (let seed = 0; seed < 40 && finished.size < 2; ++seed) {
      const options = { tools, response_format: format, temperature: 1.5, seed, max_tokens: 200 };
      const { message, finish_reason } = (await chat(options)).choices[0];
      if (finish_reason === 'length') continue;
      finished.add(finish_reason);
      if (finish_reason === 'tool_calls') {
        assert.equal(message.content, null);
        for (const call of message.tool_calls) JSON.parse(call.function.arguments);
      } else {
        assert.equal(message.tool_calls, undefined);
        checkTale(JSON.parse(message.content));
      }
    }
    assert.deepEqual([...finished].sort(), ['stop', 'tool_calls']);
  });

  test('openai: tools that must be called, whole and streamed', async () => {
    const options = { tools, tool_choice: 'required', max_tokens: 200, parallel_tool_calls: false };
    const whole = await chat(options);
    const { message, finish_reason } = whole.choices[0];
    assert.equal(finish_reason, 'tool_calls');
    assert.equal(message.tool_calls.length, 1);
    const [call] = message.tool_calls;
    assert.ok(['get_weather', 'get_time'].includes(call.function.name));
    const named = await chat({ ...options, tool_choice: { type: 'function', function: { name: 'get_weather' } } });
    const [weatherCall] = named.choices[0].message.tool_calls;
    assert.equal(weatherCall.function.name, 'get_weather');
    checkWeather(JSON.parse(weatherCall.function.arguments));

    const runner = client().chat.completions.stream({ model, messages, ...options });
    const streamed = (await runner.finalChatCompletion()).choices[0];
    assert.equal(streamed.finish_reason, 'tool_calls');
    assert.equal(streamed.message.tool_calls[0].function.name, call.function.name);
    assert.equal(streamed.message.tool_calls[0].function.arguments, call.function.arguments);

    const next = await chat({
      tools,
      messages: [...messages, message, { role: 'tool', tool_call_id: call.id, content: '{"sky": "blue"}' }],
    });
    assert.ok(next.choices[0].message.content !== undefined);
    assert.ok(next.usage.prompt_tokens > whole.usage.prompt_tokens);
  });

  test('openai: tools that must not be called are not in the prompt', async () => {
    const without = (await chat({})).usage.prompt_tokens;
    assert.equal((await chat({ tools, tool_choice: 'none' })).usage.prompt_tokens, without);
    assert.ok((await chat({ tools })).usage.prompt_tokens > without);
  });

  test('openai: a conversation goes on from its kept state, with the answer of a cold one', async () => {
    const first = await chat({});
    const longer = [...messages, first.choices[0].message, { role: 'user', content: 'And then?' }];
    const warm = await chat({ messages: longer });
    const fresh = await chat({ messages: [{ role: 'system', content: 'Other.' }, ...longer.slice(1)] });
    const again = await chat({ messages: longer });
    assert.equal(again.choices[0].message.content, warm.choices[0].message.content);
    assert.ok(fresh.usage.prompt_tokens > 0);
  });

  test('openai: errors', async () => {
    const refused = async (more, parameter, pattern) => {
      await assert.rejects(chat(more), (e) => {
        assert.ok(e instanceof OpenAI.BadRequestError, String(e));
        assert.equal(e.type, 'invalid_request_error');
        if (parameter) assert.equal(e.param, parameter);
        assert.match(e.message, pattern);
        return true;
      });
    };
    await refused({ temperature: 'hot' }, 'temperature', /number from 0/);
    await refused({ n: 2 }, 'n', /must be 1/);
    await refused({ messages: [] }, 'messages', /empty/);
    await refused({ messages: [{ role: 'wizard', content: 'x' }] }, 'messages[0].role', /must be/);
    await refused({ messages: [{ role: 'user' }] }, 'messages[0].content', /missing/);
    const image = { type: 'image_url', image_url: { url: 'file:///etc/passwd' } };
    await refused({ messages: [{ role: 'user', content: [image] }] }, 'messages[0].content[0].type', /only text/);
    await refused({ tools: [{ type: 'function', function: { name: '<tool>' } }] }, 'tools[0].function.name', /a-z/);
    await refused({ tool_choice: 'required' }, 'tool_choice', /no tools/);
    await refused({ logit_bias: { 5: 1 } }, 'logit_bias', /not supported/);
    await refused({ response_format: { type: 'xml' } }, 'response_format.type', /json_schema/);
    await assert.rejects(chat({ messages: [{ role: 'user', content: 'fox '.repeat(2000) }] }),
      (e) => e.code === 'context_length_exceeded' && /too long: \d+ tokens > 1023/.test(e.message));
    await assert.rejects(client().post('/nothing', { body: {} }), OpenAI.NotFoundError);
    await assert.rejects(client().get('/chat/completions'), (e) => e.status === 405);
  });

  test('openai: an abort stops the computation at once', async () => {
    const cancelled = await metric(context.url, 'answers_cancelled_total');
    const long = { max_tokens: 900, ignore_eos: true, messages };
    const stream = await chat({ ...long, stream: true });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break;  // which aborts
    await until('the stream to be cancelled', async () =>
      (await metric(context.url, 'answers_cancelled_total')) === cancelled + 1);
    const controller = new AbortController();
    const whole = client().chat.completions.create({ model, ...long }, { signal: controller.signal });
    await until('the answer to begin', async () => (await metric(context.url, 'requests_active')) === 1);
    controller.abort();
    await assert.rejects(whole, OpenAI.APIUserAbortError);
    await until('the answer to be cancelled', async () =>
      (await metric(context.url, 'answers_cancelled_total')) === cancelled + 2);
    assert.equal(await metric(context.url, 'requests_active'), 0);
  });
}
