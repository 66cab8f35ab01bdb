// Strings that tokenizers get wrong.

const letters = 'The old king said: "I\'ll give my daughter\'s hand — and half the kingdom — to whoever climbs it."';

export const hostile = [
  '', ' ', '  ', '\n', '\r\n', '\t', '\0', 'a\0b', '\u001b[31mred\u001b[0m', '\u007f',
  letters, ` ${letters}`, `${letters} `, `${letters}\n\n\n${letters}\r\n\r\n\t${letters}   `,
  // Blanks in front, behind, between; other white space.
  'a b', 'a  b', 'a   b', 'a \n b', 'a\n\n b', 'a\n \n  b', 'a\t\tb', 'a \t b', '   ', ' \n ', '\n \n', '\n\n\n   x',
  'a\u00a0b', 'a\u00a0\u00a0b', '\u00a0', '\u3000あ\u3000', '\u2003x\u2009y\u202fz', 'a\u2028b\u2029c', 'a\u0085b',
  'a\u000bb\u000cc', 'a\u200bb', 'a\u2060b', '\ufeffa', 'a\u180eb', 'a\u1680b', '\u2000\u2001 \u200a', '  1', '  !', '\n!', '!\n', '!\r\n\r\n x',
  // Contractions, in every case and with other apostrophes.
  "it's", "IT'S", "It'S", "we're we'RE we'Re", "I've I'VE", "I'll I'LL I'lL", "I'd I'D", "I'm I'M", "don't DON'T", "'s", "'",
  "''s", "' s", "'ss", "'tis the season", "rock 'n' roll", "'day 'man 'read 'very 'llama 'she 'the", "'DAY 'MAN 'READ 'VERY 'LLAMA 'SHE 'THE", "it'than", "o'clock", "l'été", 'it’s', 'don’t', 'I’LL', "'\u017f", "'\u212a", "'re", "'r", "'l", "'v",
  // Digits and numbers of all kinds.
  '0', '007', '1234567890', '3.14159', '1,000,000', '1e-10', '0x7fff', '-5', '50%', '$9.99', '€20', '2²', '½', 'Ⅷ', '٣٤٥', '१२३', '①②③', '1st 2nd 3rd', 'a1b2c3', '１２３',
  // Scripts.
  '床前明月光，疑是地上霜。', 'こんにちは、世界！カタカナ', '안녕하세요 세계', 'Привет, мир! ЁЖИК', 'Γειά σου Κόσμε', 'שלום עולם', 'مرحبا بالعالم', 'السَّلَامُ عَلَيْكُمْ',
  'नमस्ते दुनिया', 'ภาษาไทยไม่มีช่องว่าง', 'தமிழ் மொழி', 'ქართული', 'հայերեն', 'አማርኛ', '𐍈𐌰𐌹', '𝔘𝔫𝔦𝔠𝔬𝔡𝔢', '𠮷野家', 'ꦱꦺꦴꦱꦶꦪꦭ', 'ᚠᛇᚻ', '⠓⠑⠇⠇⠕',
  'mixed日本語text한국어и русский', 'שלום hello مرحبا 你好', '\u202eright to left\u202c', '\u2066isolate\u2069',
  // Combining marks, composed and not.
  'é', 'e\u0301', 'e\u0301\u0323', '\u0301', ' \u0301', 'a\u0301b\u0302c', 'Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞', 'ﬁ ﬂ ﬃ', 'ǅ', 'İi̇ı', 'ß ẞ', '1\u0301', '_\u0301_', '\u0301\u0301a', '\u20dd',
  // Emoji with skin tones, joiners, flags, keycaps, tags.
  '😀', '😀😀😀', ' 😀 ', 'a😀b', '👍🏽', '👩‍👩‍👧‍👦', '🏳️‍🌈', '🇩🇪🇫🇷', '🇩', '1️⃣', '❤️', '☎︎', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '👨🏿‍🚀 to the 🌕!', '\u200d', '\ufe0f', '🫠🪿',
  // Code and addresses.
  '#include <vector>\nint main() { return 0; }\n', 'def f(x):\n    return x**2  # square\n', 'for(i=0;i<n;++i)a[i]+=b[i]*c[i];', '{"key": [1, 2.5, null, true], "s": "\\n"}',
  '<html><body class="x">&nbsp;</body></html>', 'SELECT * FROM t WHERE a=\'b\';', '\\frac{a}{b} $x^2$', 'x = y ? z : w;', '    indented\n\tтab', 'snake_case camelCase kebab-case SCREAMING_CASE',
  'https://example.org/a/b?c=d&e=%20f#g', 'user@example.org', 'C:\\Windows\\System32', '/usr/local/bin', 'git commit -am "x"', '$HOME/.config', '!!!', '...', '---', '***', '====', '>>>', '->', '::', '~~', '``', '"""', '\'\'\'',
  // What looks like a special token.
  '<|im_start|>', '<|im_end|>', '<|endoftext|>', '<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n', '<|im_start|><|im_start|>', ' <|im_end|> ', 'a<|im_end|>b', '<|im_start', '<|im_start|', '|im_start|>',
  '<<|im_start|>>', '< |im_start|>', '<|im_start|>\n\n', '<|IM_START|>', '<|im_end|><|im_end|>  <|im_end|>\n', '<|endoftext|>Once', '</s>', '<s>', '<unk>', '[PAD]', '<think>\n\n</think>', '<tool_call>{}</tool_call>', '<|fim_prefix|>', '<|', '|>', '<||>', '<|im_<|im_end|>end|>',
  // Private use, unassigned, noncharacters, the replacement character, the ends of the planes.
  '\ue000\uf8ff', '\u{f0000}', '\u{10ffff}', '\u0378', '\ufdd0', '\uffff', '\ufffd', '\u{1f9ff}\u{1faff}', '\u{2ebf0}', '\u{11f04}', '\u1c89', '\u{e0001}',
  // Long runs: all linear.
  'a'.repeat(100_000), ' '.repeat(100_000), '\n'.repeat(20_000), '1'.repeat(20_000), '!'.repeat(20_000), 'é'.repeat(20_000), '語'.repeat(20_000), '<|im_'.repeat(10_000), `${'a '.repeat(30_000)}`, '😀'.repeat(5_000),
];

// A generator whose sequence is the same everywhere (mulberry32).
export function makeRandom(seed) {
  let state = seed;
  return (n) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

const pieces = [
  ' ', '  ', '\n', '\r\n', '\t', "'", "'S", "'re", "'LL", '’s', 'a', 'b', 'the', ' the', 'Zebra', '1', '23', '²', '٣', '中', '文', 'あ', 'e\u0301', '\u0301', 'नि', '\u200d', '\ufe0f', '👩', '🇩🇪', '🏽',
  'ש', 'ال', '\u200f', '\u200b', '\u00a0', '\u3000', '\u2028', '\u0085', '\ufeff', '\ufffd', '\ue000', '<|im_', '<|', '|>', 'http://a.b/c?d=e', '{"x":[1]}', '_', '-', '...', '$', '€', 'A', 'ſ', 'K', 'Σ', '\0',
];

// What decides where a pre-tokenizer cuts.
const cutting = [' ', '\n', '\r', '\t', "'", 's', 'T', 're', 'VE', 'm', 'll', 'd', 'a', '1', '!', '\u00a0', '\u0301', 'é'];

// A string of up to `length` pieces of those.
export function randomCuts(random, length) {
  let text = '';
  for (let n = random(length) + 1; n > 0; n--) text += cutting[random(cutting.length)];
  return text;
}

// A string of up to `length` pieces from a nasty alphabet, with code points of all planes among them.
export function randomString(random, length) {
  let text = '';
  for (let n = random(length) + 1; n > 0; n--) {
    const code = random(2) ? random(0x3000) : random(0x33000);
    const isSurrogate = code >= 0xd800 && code < 0xe000;
    text += random(12) || isSurrogate ? pieces[random(pieces.length)] : String.fromCodePoint(code);
  }
  return text;
}
