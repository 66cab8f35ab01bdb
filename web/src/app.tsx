import { signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { modelName, ServerError, setKey } from './api';
import { CacheView } from './cache';
import { Chat } from './chat';
import { SettingsDialog } from './settings';
import { Sidebar } from './sidebar';
import { current, storageFull, theme } from './store';
import { keyWanted, running, stop } from './talk';

const model = signal('');
const unreachable = signal('');
const sidebarOpen = signal(false);
const settingsOpen = signal(false);
/** Where the cache view is: beside the chat, in its place, or closed. */
const cacheView = signal<'closed' | 'beside' | 'whole'>(innerWidth > 1100 ? 'beside' : 'closed');

async function findModel() {
  try {
    model.value = await modelName();
    unreachable.value = '';
  } catch (e) {
    if (e instanceof ServerError && e.status === 401) keyWanted.value = true;
    else unreachable.value = (e as Error).message;
  }
}

export function App() {
  useEffect(() => {
    void findModel();
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  const themes = { auto: 'light', light: 'dark', dark: 'auto' } as const;
  return (
    <div class="page">
      <header>
        <button type="button" class="quiet menu" aria-label="Conversations" aria-expanded={sidebarOpen.value}
          onClick={() => (sidebarOpen.value = !sidebarOpen.value)}>☰</button>
        <h1><img src="/icon.svg" alt="" /> Red Lite</h1>
        <span class="model" title={model.value}>{model.value}</span>
        <nav>
          <button type="button" aria-pressed={cacheView.value !== 'closed'} onClick={toggleCache}>Cache</button>
          <button type="button" onClick={() => (settingsOpen.value = true)}>Settings</button>
          <button type="button" class="quiet" title={`Colours: ${theme.value}`} aria-label={`Colours: ${theme.value}`}
            onClick={() => (theme.value = themes[theme.value])}>
            {{ auto: '◐', light: '☀', dark: '☾' }[theme.value]}
          </button>
        </nav>
      </header>
      {unreachable.value && (
        <p class="warning" role="alert">
          {unreachable.value} <button type="button" onClick={findModel}>Try again</button>
        </p>
      )}
      {storageFull.value && <p class="warning">This browser's storage is full: the oldest conversations are no longer kept.</p>}
      <div class={`body ${sidebarOpen.value ? 'with-sidebar' : ''} cache-${cacheView.value}`}>
        <Sidebar close={() => (sidebarOpen.value = false)} />
        <Chat />
        {cacheView.value !== 'closed' && (
          <CacheView whole={cacheView.value === 'whole'}
            resize={() => (cacheView.value = cacheView.value === 'whole' ? 'beside' : 'whole')}
            close={() => (cacheView.value = 'closed')} />
        )}
      </div>
      {settingsOpen.value && <SettingsDialog close={() => (settingsOpen.value = false)} />}
      {keyWanted.value && <KeyDialog />}
    </div>
  );
}

function toggleCache() {
  if (cacheView.value !== 'closed') cacheView.value = 'closed';
  else cacheView.value = innerWidth > 800 ? 'beside' : 'whole';
}

function onKey(event: KeyboardEvent) {
  if (event.key === 'Escape' && running.value) stop();
  if (event.altKey && event.code === 'KeyN') {
    event.preventDefault();
    current.value = '';
    document.querySelector<HTMLTextAreaElement>('.composer textarea')?.focus();
  }
  if (event.altKey && event.code === 'KeyC') {
    event.preventDefault();
    toggleCache();
  }
}

function KeyDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => dialog.current!.showModal(), []);
  const enter = (event: SubmitEvent) => {
    setKey(String(new FormData(event.currentTarget as HTMLFormElement).get('key')).trim());
    void findModel();
  };
  return (
    <dialog ref={dialog} class="dialog" aria-label="Key" onClose={() => (keyWanted.value = false)}>
      <form method="dialog" onSubmit={enter}>
        <h2>This server wants a key</h2>
        <label>The key that <code>redlite serve</code> was given
          <input name="key" type="password" autocomplete="off" autofocus required />
        </label>
        <div class="buttons"><button type="submit" class="main">Go on</button></div>
      </form>
    </dialog>
  );
}
