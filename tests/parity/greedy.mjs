// Greedy text of a real model against the judge's, on the file as it is shipped.
import fs from 'node:fs';
import path from 'node:path';

import {largestDifference} from './compare.mjs';
import {greedy, logitsOf, withModel} from './judge.mjs';
import {redlite} from './redlite.mjs';

const N_TOKENS = 64;
const PROMPTS = [
  'Once upon a time', 'There was once a king who', 'The wolf said to the', 'In the middle of the forest', 'A poor woodcutter had',
  '"Who is there?" cried', 'The princess opened the', 'When the moon rose,', 'Long ago, before', 'The youngest brother went',
  'The fox and the', 'Deep under the sea', 'An old woman lived', 'The giant laughed and', 'She took the golden',
  '<|im_start|>user\nTell me the tale of the fox.<|im_end|>\n<|im_start|>assistant\n', 'At last they came to', 'The three sons',
  'No sooner had he', 'And they lived',
];

// The judge's noise at the token after these: how far its logits are from those of the file's F32 twin.
async function noiseAfter(demo, twin, tokens, nVocab) {
  const last = async (file) => (await withModel(file, (model) => logitsOf(model, tokens, {nVocab}))).at(-1);
  return largestDifference(await last(demo), await last(twin));
}

export async function checkGreedy(report, demo, folder) {
  const runs = await withModel(demo, async (model) => {
    const all = [];
    for (const text of PROMPTS) {
      const prompt = model.tokenize(text, true);
      all.push({text, prompt, steps: await greedy(model, prompt, N_TOKENS), nVocab: model.fileInfo.metadata.tokenizer.ggml.tokens.length});
    }
    return all;
  });
  const twin = path.join(folder, 'demo.f32.gguf');
  let excused = 0;
  for (const {text, prompt, steps, nVocab} of runs) {
    const expected = steps.map(({token}) => token);
    // After an excused difference the comparison goes on from the judge's text.
    for (let done = 0; done < N_TOKENS;) {
      const start = [...prompt, ...expected.slice(0, done)];
      const out = redlite('generate', demo, '--tokens', start.join(','), '--temp', '0', '--kv', 'f32', '--ignore-eos',
                          '--print-ids', '-n', String(N_TOKENS - done));
      const ids = JSON.parse(out.trimEnd().split('\n').at(-1));
      const at = expected.slice(done).findIndex((token, i) => token !== ids[i]);
      if (at < 0) break;
      const step = done + at;
      if (!fs.existsSync(twin)) redlite('convert', demo, twin, '--to', 'f32');
      const noise = await noiseAfter(demo, twin, [...prompt, ...expected.slice(0, step)], nVocab);
      const {margin} = steps[step];
      const isNoise = margin <= 2 * noise;  // each of the two may have moved
      report.check(`greedy ${JSON.stringify(text)}: token ${step}`, isNoise,
                   () => `${ids[at]}, not ${expected[step]}; the judge's margin is ${margin}, its noise ${noise}`);
      if (isNoise) {
        excused++;
        console.log(`  ${JSON.stringify(text)}: token ${step} excused, the judge's best two are ${margin.toFixed(3)} apart, ` +
                    `each may move by ${noise.toFixed(3)}`);
      }
      done = step + 1;
    }
    report.check(`greedy ${JSON.stringify(text)}`, true);
  }
  fs.rmSync(twin, {force: true});
  console.log(`  ${PROMPTS.length} prompts x ${N_TOKENS} tokens: ${excused} differences, all within the judge's noise`);
}
