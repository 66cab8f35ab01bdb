// What the browser keeps: conversations, settings and looks. Nothing of it leaves this browser but the messages of a
// question, which go to the server the page came from.
import { effect, signal } from '@preact/signals';

export interface Message {
  role: 'user' | 'assistant';
  text: string;
  reasoning?: string;
  /** Of an answer: how it ended and what it took. */
  note?: string;
  error?: string;
}

export interface Conversation {
  id: string;
  title: string;
  messages: Message[];
  changed: number;
}

export interface Settings {
  system: string;
  temperature: number;
  topP: number;
  topK: number;
  minP: number;
  repeatPenalty: number;
  maxTokens: number;
  seed: number | null;
  showReasoning: boolean;
}

export const defaults: Settings = {
  system: '',
  temperature: 0.7,
  topP: 0.95,
  topK: 40,
  minP: 0.05,
  repeatPenalty: 1.1,
  maxTokens: 0,
  seed: null,
  showReasoning: false,
};

const kConversations = 'redlite-conversations-1';
const kSettings = 'redlite-settings-1';
const kTheme = 'redlite-theme';

function load<T>(name: string, fallback: T): T {
  try {
    const text = localStorage.getItem(name);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback;
  }
}

export const conversations = signal<Conversation[]>(load<Conversation[]>(kConversations, []).filter(valid));
export const current = signal<string>(conversations.value[0]?.id ?? '');
export const settings = signal<Settings>({ ...defaults, ...load<Partial<Settings>>(kSettings, {}) });
export const theme = signal<'auto' | 'light' | 'dark'>(load(kTheme, 'auto'));
/** Set when the browser's storage is full: older conversations then leave it first. */
export const storageFull = signal(false);

function valid(c: Conversation) {
  return typeof c?.id === 'string' && typeof c.title === 'string' && Array.isArray(c.messages);
}

// Streaming changes a conversation many times a second; it is written when it rests.
let timer: ReturnType<typeof setTimeout> | undefined;
effect(() => {
  const all = conversations.value;
  clearTimeout(timer);
  timer = setTimeout(() => write(all), 300);
});
addEventListener('pagehide', () => write(conversations.value));

function write(all: Conversation[]) {
  for (let kept = [...all].sort((a, b) => b.changed - a.changed); ; kept = kept.slice(0, -1)) {
    try {
      localStorage.setItem(kConversations, JSON.stringify(kept));
      storageFull.value = kept.length < all.length;
      return;
    } catch {
      if (kept.length === 0) return;
    }
  }
}

effect(() => localStorage.setItem(kSettings, JSON.stringify(settings.value)));
effect(() => {
  localStorage.setItem(kTheme, JSON.stringify(theme.value));
  document.documentElement.dataset['theme'] = theme.value;
});

export function conversation(): Conversation | undefined {
  return conversations.value.find((c) => c.id === current.value);
}

/** Changes a conversation's messages; makes it if there is none of that name. */
export function update(id: string, change: (messages: Message[]) => Message[]) {
  const old = conversations.value.find((c) => c.id === id);
  const messages = change(old?.messages ?? []);
  const first = messages.find((m) => m.role === 'user')?.text ?? '';
  const title = first.replace(/\s+/g, ' ').slice(0, 60) || 'New conversation';
  const next = { id, title, messages, changed: Date.now() };
  conversations.value = [next, ...conversations.value.filter((c) => c.id !== id)];
}

export function remove(id: string) {
  conversations.value = conversations.value.filter((c) => c.id !== id);
  if (current.value === id) current.value = conversations.value[0]?.id ?? '';
}

export function freshId(): string {
  return Array.from(crypto.getRandomValues(new Uint32Array(2)), (n) => n.toString(36)).join('');
}
