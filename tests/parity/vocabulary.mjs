// A vocabulary whose merges know nothing of words: byte pair encoding learned from whole strings, across blanks,
// apostrophes and line ends. Where a pre-tokenizer cuts in the wrong place, other tokens come out. (A model's own
// merges were learned inside words and forgive most wrong cuts.)

// GPT-2's byte-level alphabet.
const isPrintable = (byte) => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
const others = [...Array(256).keys()].filter((byte) => !isPrintable(byte));
const character = (byte) => String.fromCodePoint(isPrintable(byte) ? byte : 0x100 + others.indexOf(byte));

// {texts, merges}: 256 bytes and `n` merges, as arrays of strings; none of the texts is in `taken`.
export function learnMerges(strings, n, taken) {
  const texts = [...Array(256).keys()].map(character);
  const merges = [];
  let parts = strings.map((s) => [...Buffer.from(s, 'utf8')]);
  while (merges.length < n) {
    const counts = new Map();
    for (const tokens of parts) {
      for (let i = 0; i + 1 < tokens.length; i++) {
        const pair = tokens[i] * 65536 + tokens[i + 1];
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      }
    }
    // Several at a time: good enough, and quick. Texts must stay distinct.
    const best = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 64);
    if (best.length === 0) throw new Error('too little text for so many merges');
    const made = new Map();
    for (const [pair] of best) {
      const [left, right] = [Math.floor(pair / 65536), pair % 65536];
      const text = texts[left] + texts[right];
      if (merges.length === n || texts.includes(text) || taken.includes(text)) continue;
      made.set(pair, texts.length);
      merges.push(`${texts[left]} ${texts[right]}`);
      texts.push(text);
    }
    if (made.size === 0) throw new Error('too little text for so many merges');
    parts = parts.map((tokens) => {
      const out = [];
      for (let i = 0; i < tokens.length; i++) {
        const token = made.get(tokens[i] * 65536 + tokens[i + 1]);
        if (token !== undefined) i++;
        out.push(token ?? tokens[i]);
      }
      return out;
    });
  }
  return {texts, merges};
}
