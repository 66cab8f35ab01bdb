// What the page asks the server.
import { serverEvents } from './sse';
import type { Message, Settings } from './store';

/** The server refused or could not be reached; the message is for the user. */
export class ServerError extends Error {
  constructor(message: string, readonly status: number) {
    super(message);
  }
}

let key = sessionStorage.getItem('redlite-key') ?? '';
export function setKey(value: string) {
  key = value;
  sessionStorage.setItem('redlite-key', value);
}

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers: Record<string, string> = { ...(init.headers as Record<string, string>) };
  if (key) headers['Authorization'] = `Bearer ${key}`;
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (e) {
    if ((e as Error).name === 'AbortError') throw e;
    throw new ServerError('The server cannot be reached.', 0);
  }
  if (!response.ok) {
    const text = await response.text();
    let message = text;
    try {
      message = JSON.parse(text).error?.message ?? text;
    } catch {
      // not JSON: the text itself
    }
    throw new ServerError(message || `The server answered ${response.status}.`, response.status);
  }
  return response;
}

export async function modelName(): Promise<string> {
  const models = await (await request('/v1/models')).json();
  return models.data?.[0]?.id ?? 'model';
}

export interface Usage {
  promptTokens: number;
  cachedTokens: number;
  answerTokens: number;
}

export type ChatEvent =
  | { kind: 'reading'; done: number; total: number }
  | { kind: 'text'; text: string }
  | { kind: 'reasoning'; text: string }
  | { kind: 'end'; reason: string }
  | { kind: 'usage'; usage: Usage };

/** An answer as it comes. Aborting the signal stops the computation. */
export async function* answer(messages: Message[], settings: Settings, signal: AbortSignal): AsyncGenerator<ChatEvent> {
  const system = settings.system.trim();
  const body = {
    messages: [
      ...(system ? [{ role: 'system', content: system }] : []),
      ...messages.map(({ role, text }) => ({ role, content: text })),
    ],
    stream: true,
    stream_options: { include_usage: true },
    redlite_progress: true,
    temperature: settings.temperature,
    top_p: settings.topP,
    top_k: settings.topK,
    min_p: settings.minP,
    repeat_penalty: settings.repeatPenalty,
    ...(settings.maxTokens > 0 ? { max_tokens: settings.maxTokens } : {}),
    ...(settings.seed !== null ? { seed: settings.seed } : {}),
  };
  const response = await request('/v1/chat/completions', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
    signal,
  });
  for await (const { data } of serverEvents(response.body!)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message ?? 'The answer broke off.', 0);
    if (chunk.redlite) {
      yield { kind: 'reading', done: chunk.redlite.done_tokens, total: chunk.redlite.prompt_tokens };
    }
    const choice = chunk.choices?.[0];
    if (choice?.delta?.reasoning_content) yield { kind: 'reasoning', text: choice.delta.reasoning_content };
    if (choice?.delta?.content) yield { kind: 'text', text: choice.delta.content };
    if (choice?.finish_reason) yield { kind: 'end', reason: choice.finish_reason };
    if (chunk.usage) {
      const usage = {
        promptTokens: chunk.usage.prompt_tokens,
        cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
        answerTokens: chunk.usage.completion_tokens,
      };
      yield { kind: 'usage', usage };
    }
  }
}

/** The expert cache at one moment, and what happened since the frame before. */
export interface CacheFrame {
  frame: number;
  layers: number;
  experts: number;
  /** For each layer a letter for each expert: '.' on disk, 'r' resident, 'h' hit, 'm' missed, 'p' read ahead. */
  rows: string[];
  hit_rate: number | null;
  bytes_read: number;
  prefill_rate: number;
  decode_rate: number;
  active: number;
  queued: number;
  resident_bytes: number;
  /** Seconds since the frame before, by part of the pass. */
  stages: Record<string, number>;
  recent: { answer_tokens: number; read_tokens: number };
}

/** Frames of the expert cache as they come. Ends when the server does. */
export async function* cacheFrames(signal: AbortSignal): AsyncGenerator<CacheFrame> {
  const response = await request('/cache/events', { signal });
  for await (const { data } of serverEvents(response.body!)) yield JSON.parse(data);
}
