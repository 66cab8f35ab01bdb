import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { CopyButton, Markdown } from './markdown';
import { conversation, current, settings, type Message } from './store';
import { ask, askAgain, running, stop } from './talk';

export function Chat() {
  const messages = conversation()?.messages ?? [];
  const scroller = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  useLayoutEffect(() => {
    following.current = true;
  }, [current.value]);
  // Follows the text as it grows, unless one has scrolled up to read.
  useLayoutEffect(() => {
    const s = scroller.current;
    if (s && following.current) s.scrollTop = s.scrollHeight;
  });
  const onScroll = () => {
    const s = scroller.current!;
    following.current = s.scrollHeight - s.scrollTop - s.clientHeight < 40;
  };
  const mine = running.value?.conversation === current.value;
  return (
    <main class="chat">
      <div class="scroller" ref={scroller} onScroll={onScroll}>
        <div class="messages" aria-live="off">
          {messages.length === 0 && (
            <div class="welcome">
              <h2>Ask something.</h2>
              <p>The model runs on this machine; its experts come from the SSD as they are needed. The cache view shows
                which of them are in memory.</p>
            </div>
          )}
          {messages.map((message, i) => (
            <MessageView key={`${current.value}-${i}`} message={message} index={i} last={i === messages.length - 1}
              writing={mine && i === messages.length - 1} />
          ))}
        </div>
      </div>
      <div class="sr-only" role="status">
        {mine ? 'Writing an answer' : messages.at(-1)?.role === 'assistant' ? 'Answer complete' : ''}
      </div>
      <Composer />
    </main>
  );
}

function MessageView({ message, index, last, writing }:
  { message: Message; index: number; last: boolean; writing: boolean }) {
  const [editing, setEditing] = useState(false);
  if (message.role === 'user') {
    if (editing) return <Editor text={message.text} index={index} close={() => setEditing(false)} />;
    return (
      <article class="user">
        <div class="text">{message.text}</div>
        <Tools>
          <CopyButton text={message.text} />
          <button type="button" class="quiet" disabled={!!running.value} onClick={() => setEditing(true)}>Edit</button>
        </Tools>
      </article>
    );
  }
  return (
    <article class="assistant" aria-busy={writing}>
      {message.reasoning && (
        <details class="reasoning" open={settings.value.showReasoning || (writing && !message.text)}>
          <summary>{writing && !message.text ? 'Thinking…' : 'Thoughts'}</summary>
          <div>{message.reasoning}</div>
        </details>
      )}
      <Markdown text={message.text} />
      {writing && <Progress empty={!message.text && !message.reasoning} />}
      {message.error && <p class="warning" role="alert">{message.error}</p>}
      {!writing && (
        <Tools>
          <CopyButton text={message.text} />
          {last && (
            <button type="button" class="quiet" disabled={!!running.value} onClick={() => askAgain(index - 1)}>
              Regenerate
            </button>
          )}
          {message.note && <span class="note">{message.note}</span>}
        </Tools>
      )}
    </article>
  );
}

function Tools({ children }: { children: preact.ComponentChildren }) {
  return <div class="tools">{children}</div>;
}

function Editor({ text, index, close }: { text: string; index: number; close: () => void }) {
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => area.current!.focus(), []);
  const send = () => {
    const edited = area.current!.value.trim();
    close();
    if (edited) askAgain(index, edited);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'Escape') close();
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  };
  return (
    <article class="user editing">
      <textarea ref={area} aria-label="Edit the question" rows={Math.min(12, text.split('\n').length + 1)}
        defaultValue={text} onKeyDown={onKey} />
      <Tools>
        <button type="button" class="main" onClick={send}>Ask again</button>
        <button type="button" class="quiet" onClick={close}>Cancel</button>
      </Tools>
    </article>
  );
}

/** What happens before the first word: waiting, or reading the prompt with its speed and the time left. */
function Progress({ empty }: { empty: boolean }) {
  const reading = running.value?.reading;
  if (!empty) return <span class="caret" aria-hidden="true" />;
  if (!reading) return <p class="small">Waiting…</p>;
  const seconds = (performance.now() - reading.started) / 1000;
  const rate = seconds > 0.2 ? reading.done / seconds : 0;
  const left = rate > 0 ? Math.ceil((reading.total - reading.done) / rate) : 0;
  return (
    <div class="progress">
      <progress value={reading.done} max={reading.total} aria-label="Reading the prompt" />
      <span class="small">
        {reading.done} of {reading.total} tokens read{rate > 0 && `, ${rate.toFixed(0)} tok/s, ${left} s left`}
      </span>
    </div>
  );
}

function Composer() {
  const area = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState('');
  useLayoutEffect(() => {
    const a = area.current!;
    a.style.height = 'auto';
    a.style.height = `${Math.min(a.scrollHeight, 240)}px`;
  }, [text]);
  const send = () => {
    if (!text.trim() || running.value) return;
    ask(text.trim());
    setText('');
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  };
  return (
    <div class="composer">
      <textarea ref={area} rows={1} value={text} placeholder="Message" aria-label="Message" autofocus
        title="Enter sends, Shift+Enter begins a new line, Escape stops an answer"
        onInput={(e) => setText(e.currentTarget.value)} onKeyDown={onKey} />
      {running.value
        ? <button type="button" class="main stop" onClick={stop}>Stop</button>
        : <button type="button" class="main" disabled={!text.trim()} onClick={send}>Send</button>}
    </div>
  );
}
