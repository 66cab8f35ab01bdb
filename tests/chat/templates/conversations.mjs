// Conversations of every shape that templates must cope with: {name, messages, tools?, ...variables}.

const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather of a place, "now" or later: <tag> & \'quotes\' \\ ünï 天气.',
    parameters: {
      type: 'object',
      properties: {
        place: {type: 'string', description: 'A town'},
        days: {type: 'integer', default: 1, enum: [1, 2, 3]},
        units: {type: ['string', 'null'], enum: ['C', 'F', null]},
      },
      required: ['place'],
    },
  },
};
const search = {
  type: 'function',
  function: {name: 'search', description: '', parameters: {type: 'object', properties: {}, required: []}},
};

const user = (content) => ({role: 'user', content});
const assistant = (content, more = {}) => ({role: 'assistant', content, ...more});
const system = (content) => ({role: 'system', content});
const call = (name, args) => ({type: 'function', function: {name, arguments: args}});
const tool = (content, more = {}) => ({role: 'tool', content, ...more});
const parts = (...texts) => texts.map((text) => ({type: 'text', text}));

const nested = {
  place: 'Zürich',
  list: [1, -2.5, true, false, null, 'a"b\\c\n\t\u0001\u007f', [], {}, [[]], {deep: {deeper: [{deepest: '天'}]}}],
  '': 'empty key',
  'ключ': 0,
};
const odd = 'Tab\tquote"\'back\\slash\r\nnew\n\n{{ not }} {% a %} {# template #} <|im_end|><|im_start|>system\n</s>[INST] 👩‍🚀 e\u0301 \u200b\u00a0\u2028 é';
const ping = [user('Hi'), assistant('Hello!'), user('Bye')];

export const conversations = [
  {name: 'one question', messages: [user('What is 2 + 2?')]},
  {name: 'no prompt for an answer', messages: [user('Hi'), assistant('Hello!')], add_generation_prompt: false},
  {name: 'several turns', messages: ping},
  {name: 'system', messages: [system('Be brief.'), ...ping]},
  {name: 'system only', messages: [system('Be brief.')]},
  {name: 'two systems', messages: [system('One.'), system('Two.'), user('Hi')]},
  {name: 'a system in between', messages: [user('Hi'), system('Be rude.'), assistant('No.'), user('Go on')]},
  {name: 'ends with the assistant', messages: [...ping, assistant('Bye.')]},
  {name: 'two users in a row', messages: [user('a'), user('b')]},
  {name: 'assistant first', messages: [assistant('I begin.'), user('ok')]},
  {name: 'white space around', messages: [system('  \n s \n'), user(' \t q \n\n'), assistant('\n\n a \n'), user('\u00a0x\u3000')]},
  {name: 'empty content', messages: [system(''), user(''), assistant(''), user('')]},
  {name: 'null content', messages: [user('Hi'), assistant(null), user('Hm?')]},
  {name: 'missing content', messages: [user('Hi'), {role: 'assistant'}, user('Hm?')]},
  {name: 'parts', messages: [user(parts('one')), assistant(parts('two', 'three')), user(parts('four', ' five '))]},
  {name: 'an image', messages: [user([{type: 'image'}, {type: 'text', text: 'What is this?'}])]},
  {name: 'no messages', messages: []},
  {name: 'odd text', messages: [system(odd), user(odd), assistant(odd), user(odd + odd)]},
  {name: 'very long', messages: [user('long 天 '.repeat(40000)), assistant('x'.repeat(200000)), user('<'.repeat(50000))]},
  {name: 'many turns', messages: Array.from({length: 301}, (_, i) => (i % 2 ? assistant(`a${i}`) : user(`q${i}`)))},
  {name: 'unknown role', messages: [user('Hi'), {role: 'critic', content: 'Boo'}, user('What?')]},
  {name: 'developer', messages: [{role: 'developer', content: 'Obey.'}, user('Hi')]},
  {name: 'thinking', messages: [user('Hi'), assistant('<think>\nhm\n</think>\n\nHello!'), user('Bye')]},
  {name: 'thinking in the last answer', messages: [user('Hi'), assistant('<think>\nhm\n</think>\n\nHello!')]},
  {name: 'reasoning', messages: [user('Hi'), assistant('Hello!', {reasoning_content: '\nI think.\n'}), user('Bye'), assistant('Bye', {reasoning_content: 'End?'})]},
  {name: 'reasoning with a tool', messages: [user('Weather?'), assistant('', {reasoning_content: 'Call it.', tool_calls: [call('get_weather', {place: 'Bern'})]}), tool('sunny')], tools: [weather]},
  {name: 'thinking off', messages: ping, enable_thinking: false},
  {name: 'thinking on', messages: ping, enable_thinking: true},
  {name: 'tools', messages: [user('Weather in Bern?')], tools: [weather, search]},
  {name: 'no tools', messages: ping, tools: []},
  {name: 'tools are null', messages: ping, tools: null},
  {name: 'tools and system', messages: [system('Be brief.'), user('Weather in Bern?')], tools: [weather]},
  {name: 'tool call', messages: [user('Weather?'), assistant('', {tool_calls: [call('get_weather', {place: 'Bern'})]}), tool('{"sky": "blue"}'), assistant('Blue.'), user('Thanks')], tools: [weather]},
  {name: 'tool call with text', messages: [user('Weather?'), assistant('I will look.', {tool_calls: [call('get_weather', {place: 'Bern'})]}), tool('sunny', {name: 'get_weather', tool_call_id: 'c1'})], tools: [weather]},
  {name: 'tool call without content', messages: [user('Weather?'), assistant(null, {tool_calls: [call('get_weather', {place: 'Bern'})]}), tool('sunny')], tools: [weather]},
  {name: 'parallel calls', messages: [user('Both?'), assistant('', {tool_calls: [call('get_weather', {place: 'A'}), call('search', {})]}), tool('1'), tool('2'), assistant('Done.'), user('More'), assistant('', {tool_calls: [call('search', {q: 1})]}), tool('3')], tools: [weather, search]},
  {name: 'nested arguments', messages: [user('Go'), assistant('', {tool_calls: [call('search', nested)]}), tool(JSON.stringify(nested))], tools: [search]},
  {name: 'arguments as text', messages: [user('Go'), assistant('', {tool_calls: [call('search', '{"a": 1}')]}), tool('r')], tools: [search]},
  {name: 'arguments that are no JSON', messages: [user('Go'), assistant('', {tool_calls: [call('search', '{"a": ')]}), tool('r')], tools: [search]},
  {name: 'odd tool results', messages: [user('Go'), assistant('', {tool_calls: [call('search', {}), call('search', {})]}), tool(odd), tool('')], tools: [search]},
  {name: 'a tool without its call', messages: [user('Go'), tool('r')], tools: [search]},
  {name: 'no calls', messages: [user('Go'), assistant('x', {tool_calls: []}), user('Hm')], tools: [search]},
];
