// Asking and stopping: the one answer that may be on its way.
import { signal } from '@preact/signals';
import { answer, ServerError } from './api';
import { conversation, current, freshId, settings, update, type Message } from './store';

export interface Running {
  conversation: string;
  /** Tokens of the prompt that are read, while it is being read. */
  reading: { done: number; total: number; started: number } | null;
  abort: AbortController;
}
export const running = signal<Running | null>(null);
/** The server wants a key. */
export const keyWanted = signal(false);

/** Appends a message of the user to the current conversation, or begins one, and gets the answer. */
export function ask(text: string) {
  if (running.value) return;
  if (!conversation()) current.value = freshId();
  const id = current.value;
  update(id, (messages) => [...messages, { role: 'user', text }]);
  void run(id);
}

/** Answers the user's message at `index` again, with `text` in its place if given. What came after it goes. */
export function askAgain(index: number, text?: string) {
  const id = current.value;
  if (running.value || !id) return;
  update(id, (messages) => {
    const kept = messages.slice(0, index + 1);
    if (text !== undefined) kept[index] = { role: 'user', text };
    return kept;
  });
  void run(id);
}

export function stop() {
  running.value?.abort.abort();
}

async function run(id: string) {
  const abort = new AbortController();
  const started = performance.now();
  running.value = { conversation: id, reading: null, abort };
  const question = conversation()?.messages ?? [];
  const reply: Message = { role: 'assistant', text: '' };
  const show = () => update(id, () => [...question, { ...reply }]);
  show();
  let firstToken = 0;
  let reason = '';
  try {
    for await (const event of answer(question.filter((m) => !m.error), settings.value, abort.signal)) {
      if (event.kind === 'reading') {
        running.value = { conversation: id, reading: { done: event.done, total: event.total, started }, abort };
        continue;
      }
      if (event.kind === 'text' || event.kind === 'reasoning') {
        if (!firstToken) {
          firstToken = performance.now();
          running.value = { conversation: id, reading: null, abort };
        }
        if (event.kind === 'text') reply.text += event.text;
        else reply.reasoning = (reply.reasoning ?? '') + event.text;
      } else if (event.kind === 'end') {
        reason = event.reason;
      } else {
        const { promptTokens, cachedTokens, answerTokens } = event.usage;
        const seconds = (performance.now() - firstToken) / 1000;
        const rate = firstToken && seconds > 0 ? `, ${(answerTokens / seconds).toFixed(1)} tok/s` : '';
        const kept = cachedTokens ? ` (${cachedTokens} remembered)` : '';
        reply.note = `${promptTokens} tokens read${kept}, ${answerTokens} written${rate}`;
      }
      show();
    }
    if (reason === 'length') reply.note = `${reply.note ?? ''} · cut off at the limit`;
  } catch (e) {
    if (abort.signal.aborted) {
      reply.note = 'stopped';
    } else {
      reply.error = e instanceof Error ? e.message : String(e);
      if (e instanceof ServerError && e.status === 401) keyWanted.value = true;
    }
  }
  running.value = null;
  show();
}
