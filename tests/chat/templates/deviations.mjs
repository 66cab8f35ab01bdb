// Where this program and @huggingface/jinja differ: because the latter departs from Python's Jinja, with which
// transformers renders and models were trained. `gives` is Python's text (Jinja 3.1), which this program must give;
// `refuses` is part of this program's message where Python raises an error, too.

const because = (why, cases) => Object.entries(cases).map(([name, answer]) => [name, {why, ...answer}]);

export const deviations = new Map([
  ...because('str() of none is None in Python, and trim takes the str() of any value; the other engine refuses', {
    'gemini: null content': {gives: "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nNone<end_of_turn>\n<start_of_turn>user\nHm?<end_of_turn>\n<start_of_turn>model\n"},
    'llama3: null content': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nNone<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHm?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    'llama3: tool call without content': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nNone<|eot_id|><|start_header_id|>tool<|end_header_id|>\n\nsunny<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    'llama3_1: null content': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nNone<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHm?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    'llama3_1: tool call without content': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nNone<|eot_id|><|start_header_id|>tool<|end_header_id|>\n\nsunny<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
  }),
  ...because('str() of what is undefined is empty; the other engine refuses to trim it, or does not find it iterable', {
    'gemini: missing content': {gives: "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n<end_of_turn>\n<start_of_turn>user\nHm?<end_of_turn>\n<start_of_turn>model\n"},
    'gemma3: missing content': {gives: "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n<end_of_turn>\n<start_of_turn>user\nHm?<end_of_turn>\n<start_of_turn>model\n"},
    'llama3: missing content': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHm?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    'llama3_1: missing content': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHm?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
  }),
  ...because('what is undefined can be iterated over in Python: there is nothing in it', {
    'deepseek_v3: null content': {gives: "<｜begin▁of▁sentence｜><｜User｜>Hi<｜User｜>Hm?<｜Assistant｜>"},
    'feature: loop over what is undefined': {gives: "[]"},
  }),
  ...because('str() of a list is written as in Python; the other engine cannot trim a list', {
    'gemini: parts': {gives: "<bos><start_of_turn>user\n[{'type': 'text', 'text': 'one'}]<end_of_turn>\n<start_of_turn>model\n[{'type': 'text', 'text': 'two'}, {'type': 'text', 'text': 'three'}]<end_of_turn>\n<start_of_turn>user\n[{'type': 'text', 'text': 'four'}, {'type': 'text', 'text': ' five '}]<end_of_turn>\n<start_of_turn>model\n"},
    'gemini: an image': {gives: "<bos><start_of_turn>user\n[{'type': 'image'}, {'type': 'text', 'text': 'What is this?'}]<end_of_turn>\n<start_of_turn>model\n"},
    'llama3: parts': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n[{'type': 'text', 'text': 'one'}]<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[{'type': 'text', 'text': 'two'}, {'type': 'text', 'text': 'three'}]<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n[{'type': 'text', 'text': 'four'}, {'type': 'text', 'text': ' five '}]<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    'llama3: an image': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n[{'type': 'image'}, {'type': 'text', 'text': 'What is this?'}]<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    'llama3_1: parts': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n[{'type': 'text', 'text': 'one'}]<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[{'type': 'text', 'text': 'two'}, {'type': 'text', 'text': 'three'}]<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n[{'type': 'text', 'text': 'four'}, {'type': 'text', 'text': ' five '}]<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    'llama3_1: an image': {gives: "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n[{'type': 'image'}, {'type': 'text', 'text': 'What is this?'}]<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
  }),
  ...because('a string + a list or a dict is a TypeError in Python; the other engine writes them in JavaScript way', {
    'deepseek_v3: parts': {refuses: "a string + a"},
    'deepseek_v3: an image': {refuses: "a string + a"},
    'deepseek_v3: tool call without content': {refuses: "a string + a"},
    'feature: sum of unlike': {refuses: "a string + a"},
  }),
  ...because('an attribute of what is undefined is an error in Jinja; the other engine goes on', {
    'gemini: no messages': {refuses: "a list has no item 0"},
    'gemma3: no messages': {refuses: "a list has no item 0"},
    'qwen3: no messages': {refuses: "a list has no item 0"},
    'feature: member of nothing': {refuses: "'nothing' is undefined"},
  }),
  ...because('every iteration of a loop has variables of its own; in the other engine they stay from one to the next', {
    'feature: scope of a loop': {gives: "o0o1o"},
  }),
  ...because('strip, lstrip and rstrip take the characters to strip; the other engine ignores them', {
    'feature: strip of characters': {gives: "axx|a|a"},
  }),
  ...because('booleans and none are written as in Python: True, None', {
    'feature: booleans as text': {gives: "True True None"},
  }),
  ...because('~ binds more tightly than +, so that this adds a number and a text', {
    'feature: precedence of ~': {refuses: "an integer + a string"},
  }),
  ...because('the other engine does not know this part of the language', {
    'feature: repetition': {gives: "abab"},
    'feature: map with a filter': {gives: "AB"},
    'feature: sum': {gives: "3"},
    'feature: select': {gives: "1,3"},
    'feature: tag that keeps white space': {gives: "   f"},
    'feature: numbers': {gives: "3.5 2.0 1e+21 1e-07 [1e+21, 1e-07]"},
  }),
]);
