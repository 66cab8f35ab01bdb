import { conversations, current, remove } from './store';
import { running } from './talk';

export function Sidebar({ close }: { close: () => void }) {
  const open = (id: string) => {
    current.value = id;
    close();
  };
  return (
    <aside class="sidebar" aria-label="Conversations">
      <button type="button" class="main" title="Alt+N" onClick={() => open('')}>New conversation</button>
      <ul>
        {conversations.value.map((c) => (
          <li key={c.id} class={c.id === current.value ? 'current' : ''}>
            <button type="button" class="quiet title" aria-current={c.id === current.value} onClick={() => open(c.id)}>
              {c.title}
            </button>
            <button type="button" class="quiet delete" aria-label={`Delete “${c.title}”`}
              disabled={running.value?.conversation === c.id}
              onClick={() => confirm(`Delete “${c.title}”?`) && remove(c.id)}>×</button>
          </li>
        ))}
      </ul>
      <p class="small">Conversations are kept in this browser only.</p>
    </aside>
  );
}
