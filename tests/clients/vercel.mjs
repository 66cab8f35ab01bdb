// npm's ai, with its provider for servers like this.
import test from 'node:test';
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from 'ai';
import { metric, until } from './server.mjs';
import { checkTale, checkWeather, tale, weather } from './openai.mjs';

const prompt = 'Tell me a tale about a fox.';

export function vercelTests(context) {
  const model = () => createOpenAICompatible({
    name: 'redlite', baseURL: `${context.url}/v1`, includeUsage: true, supportsStructuredOutputs: true,
  })('tales');

  test('ai: text, whole and streamed, is the same', async () => {
    const whole = await generateText({ model: model(), prompt, maxOutputTokens: 24, maxRetries: 0 });
    assert.ok(whole.text.length > 20);
    assert.equal(whole.finishReason, 'length');
    assert.equal(whole.usage.outputTokens, 24);
    const stream = streamText({ model: model(), prompt, maxOutputTokens: 24, maxRetries: 0 });
    let text = '';
    for await (const part of stream.textStream) text += part;
    assert.equal(text, whole.text);
    assert.equal((await stream.usage).outputTokens, 24);
  });

  test('ai: objects of a schema', async () => {
    const output = Output.object({ schema: jsonSchema(tale) });
    const whole = await generateText({ model: model(), prompt, output, maxOutputTokens: 100, maxRetries: 0 });
    checkTale(whole.output);
  });

  test('ai: tools are called and their results read', async () => {
    const asked = [];
    const get_weather = tool({
      description: 'The weather in a city',
      inputSchema: jsonSchema(weather),
      execute: async (input) => {
        asked.push(input);
        return { sky: 'blue' };
      },
    });
    const run = await generateText({
      model: model(), prompt, tools: { get_weather }, maxOutputTokens: 200, maxRetries: 0, stopWhen: stepCountIs(2),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' }),
    });
    assert.ok(asked.length >= 1);
    asked.forEach(checkWeather);
    assert.equal(run.steps.length, 2);
    assert.equal(run.steps[0].finishReason, 'tool-calls');
  });

  test('ai: an abort stops the computation', async () => {
    const controller = new AbortController();
    const stream = streamText({ model: model(), prompt, abortSignal: controller.signal, maxRetries: 0 });
    for await (const part of stream.textStream) if (part) controller.abort();
    await until('the answer to be cancelled', async () => (await metric(context.url, 'requests_active')) === 0);
  });

  test('ai: errors arrive', async () => {
    await assert.rejects(generateText({ model: model(), prompt: 'fox '.repeat(2000), maxRetries: 0 }), /too long/);
  });
}
