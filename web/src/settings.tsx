import { useLayoutEffect, useRef } from 'preact/hooks';
import { defaults, settings, type Settings } from './store';

const numbers: { name: keyof Settings; label: string; hint: string; min: number; max: number; step: number }[] = [
  { name: 'temperature', label: 'Temperature', hint: '0 takes the likeliest word every time', min: 0, max: 2, step: 0.05 },
  { name: 'topP', label: 'Top p', hint: '1: off', min: 0, max: 1, step: 0.01 },
  { name: 'topK', label: 'Top k', hint: '0: off', min: 0, max: 1000, step: 1 },
  { name: 'minP', label: 'Min p', hint: '0: off', min: 0, max: 1, step: 0.01 },
  { name: 'repeatPenalty', label: 'Repeat penalty', hint: '1: off', min: 0.5, max: 2, step: 0.01 },
  { name: 'maxTokens', label: 'Most tokens of an answer', hint: '0: until the context is full', min: 0, max: 1000000, step: 1 },
];

export function SettingsDialog({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => dialog.current!.showModal(), []);
  const s = settings.value;
  const set = (change: Partial<Settings>) => (settings.value = { ...settings.value, ...change });
  return (
    <dialog ref={dialog} class="dialog" aria-label="Settings" onClose={close}>
      <h2>Settings</h2>
      <label>System message
        <textarea rows={3} value={s.system} onInput={(e) => set({ system: e.currentTarget.value })} />
      </label>
      <div class="grid">
        {numbers.map(({ name, label, hint, min, max, step }) => (
          <label title={hint}>{label} <span class="small">{hint}</span>
            <input type="number" value={s[name] as number} min={min} max={max} step={step}
              onChange={(e) => {
                const value = e.currentTarget.valueAsNumber;
                if (Number.isFinite(value)) set({ [name]: Math.min(max, Math.max(min, value)) });
              }} />
          </label>
        ))}
        <label>Seed <span class="small">empty: a new one each time</span>
          <input type="number" min={0} max={4294967295} value={s.seed ?? ''}
            onChange={(e) => set({ seed: e.currentTarget.value === '' ? null : e.currentTarget.valueAsNumber })} />
        </label>
      </div>
      <label class="check">
        <input type="checkbox" checked={s.showReasoning} onChange={(e) => set({ showReasoning: e.currentTarget.checked })} />
        Show thoughts unfolded
      </label>
      <div class="buttons">
        <button type="button" class="quiet" onClick={() => (settings.value = defaults)}>Defaults</button>
        <button type="button" class="main" onClick={() => dialog.current!.close()}>Done</button>
      </div>
    </dialog>
  );
}
