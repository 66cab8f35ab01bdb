// The expert cache as it works: which experts are in memory, which were just used, read or read ahead.
import { signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { cacheFrames, type CacheFrame } from './api';
import { HeatMap } from './heatmap';

const frame = signal<CacheFrame | null>(null);
/** Milliseconds of a token by stage and the hit rate, over the last moments in which something was computed. */
const stages = signal<[string, number][]>([]);
const hitRate = signal<number | null>(null);
const trouble = signal('');

export function CacheView({ whole, resize, close }: { whole: boolean; resize: () => void; close: () => void }) {
  useEffect(() => {
    const abort = new AbortController();
    void follow(abort.signal);
    return () => abort.abort();
  }, []);
  const f = frame.value;
  return (
    <section class="cache" aria-label="Expert cache">
      <div class="cache-head">
        <h2>Expert cache</h2>
        <button type="button" class="quiet resize" onClick={resize}>{whole ? 'Beside the chat' : 'Enlarge'}</button>
        <button type="button" class="quiet" aria-label="Close the cache view" onClick={close}>×</button>
      </div>
      {trouble.value && <p class="warning">{trouble.value}</p>}
      {f && (f.rows.length > 0 ? <Map frame={f} /> : <p class="small">This backend keeps no cache of experts.</p>)}
      {f && <Statistics frame={f} />}
      {stages.value.length > 0 && <Stages stages={stages.value} />}
    </section>
  );
}

/** Keeps up to date until aborted; comes back by itself after the server was away. */
async function follow(abort: AbortSignal) {
  while (!abort.aborted) {
    try {
      for await (const next of cacheFrames(abort)) {
        frame.value = next;
        trouble.value = '';
        if (next.hit_rate !== null) hitRate.value = next.hit_rate;
        const tokens = next.recent.answer_tokens + next.recent.read_tokens;
        if (tokens > 0) {
          stages.value = Object.entries(next.stages).map(([name, seconds]) => [name, (1000 * seconds) / tokens]);
        }
      }
    } catch (e) {
      if (abort.aborted) return;
      trouble.value = (e as Error).message;
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
}

const words: Record<string, string> = {
  '.': 'on disk',
  r: 'in memory',
  h: 'in memory, just used',
  m: 'just read for a token that waited',
  p: 'just read ahead',
};

function Map({ frame }: { frame: CacheFrame }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const map = useRef<HeatMap | null>(null);
  const [hint, setHint] = useState('');
  useLayoutEffect(() => {
    map.current = new HeatMap(canvas.current!);
    return () => map.current!.dispose();
  }, []);
  useLayoutEffect(() => map.current!.show(frame), [frame]);
  const point = (event: MouseEvent) => {
    const at = map.current!.cellAt(event.offsetX, event.offsetY);
    setHint(at ? `Layer ${at.layer}, expert ${at.expert}: ${words[frame.rows[at.layer]![at.expert]!]}` : '');
  };
  const onDisk = frame.rows.reduce((n, row) => n + row.split('.').length - 1, 0);
  const all = frame.layers * frame.experts;
  const summary = `${frame.layers} layers (down) × ${frame.experts} experts, ${Math.round((100 * (all - onDisk)) / all)} % in memory`;
  return (
    <div class="map">
      <canvas ref={canvas} role="img" onMouseMove={point} onMouseLeave={() => setHint('')} aria-label={summary} />
      <p class="small axis">{hint || summary}</p>
      <p class="legend small">
        <span><i class="resident" /> in memory</span>
        <span><i class="hit" /> just used</span>
        <span><i class="miss" /> just missed</span>
        <span><i class="prefetched" /> read ahead</span>
      </p>
    </div>
  );
}

function Statistics({ frame }: { frame: CacheFrame }) {
  const rows: [string, string][] = [
    ['Hit rate', hitRate.value === null ? '–' : `${(100 * hitRate.value).toFixed(1)} %`],
    ['Read from disk', size(frame.bytes_read)],
    ['Writing', `${frame.decode_rate.toFixed(1)} tok/s`],
    ['Reading', `${frame.prefill_rate.toFixed(0)} tok/s`],
    ['Memory', size(frame.resident_bytes)],
    ['Requests', `${frame.active} active, ${frame.queued} waiting`],
  ];
  return (
    <dl class="stats">
      {rows.map(([name, value]) => <div><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

/** Where each token's time goes, as one bar. */
function Stages({ stages }: { stages: [string, number][] }) {
  const all = stages.reduce((sum, [, ms]) => sum + ms, 0);
  if (all <= 0) return null;
  const colour = (i: number) => `hsl(${(i * 47) % 360} 45% 55%)`;
  return (
    <div class="stages">
      <h3>{all.toFixed(all < 10 ? 2 : 0)} ms a token</h3>
      <div class="bar" aria-hidden="true">
        {stages.map(([name, ms], i) => <span title={name} style={{ flexGrow: ms, background: colour(i) }} />)}
      </div>
      <ul class="small">
        {stages.map(([name, ms], i) => (
          <li><i style={{ background: colour(i) }} /> {name} <b>{Math.round((100 * ms) / all)} %</b></li>
        ))}
      </ul>
    </div>
  );
}

function size(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; bytes >= 1024 && i < units.length - 1; ++i) bytes /= 1024;
  return `${bytes.toFixed(bytes < 10 && i > 0 ? 1 : 0)} ${units[i]}`;
}
