// The outside judge: llama.cpp as npm's node-llama-cpp ships it, on the CPU.
import {getLlama, LlamaLogLevel} from 'node-llama-cpp';

const llama = await getLlama({gpu: false, build: 'never', logLevel: LlamaLogLevel.error});

// A model of the judge's, used as: `await withModel(path, async (model) => ...)`.
export async function withModel(path, use) {
  const model = await llama.loadModel({modelPath: path, gpuLayers: 0});
  try {
    return await use(model);
  } finally {
    await model.dispose();
  }
}

// One sequence with the settings that make the judge comparable: K/V in f32 and no flash attention, where its
// defaults would round K/V to f16. One thread: several spin where the machine is busy, which takes far longer than
// the tiny models. `batch`: tokens evaluated at once.
async function withSequence(model, {context, batch}, use) {
  const ctx = await model.createContext({
    contextSize: context, batchSize: batch, sequences: 1, threads: 1, flashAttention: false,
    experimentalKvCacheKeyType: 'F32', experimentalKvCacheValueType: 'F32',
  });
  try {
    return await use(ctx.getSequence());
  } finally {
    await ctx.dispose();
  }
}

const asRow = (map, nVocab) => {
  const row = new Float32Array(nVocab);
  for (const [token, logit] of map) row[token] = logit;
  return row;
};

const wantLogits = (token) => [token, {generateNext: {logits: true, options: {temperature: 0}}}];

// The logits after each token, as Float32Arrays.
export function logitsOf(model, tokens, {nVocab, batch = 512}) {
  const context = Math.max(256, tokens.length + 8);
  return withSequence(model, {context, batch: Math.min(batch, context)}, async (sequence) => {
    const output = await sequence.controlledEvaluate(tokens.map(wantLogits));
    return tokens.map((_, i) => asRow(output[i].next.logits, nVocab));
  });
}

// Greedy continuation, token by token: [{token, margin}] where margin is the best logit less the second best.
export function greedy(model, prompt, n) {
  return withSequence(model, {context: prompt.length + n + 8, batch: 512}, async (sequence) => {
    const steps = [];
    let input = prompt;
    while (steps.length < n) {
      const wanted = {generateNext: {logits: {filter: {tokens: [], includeTop: 2}}, options: {temperature: 0}}};
      const output = await sequence.controlledEvaluate([...input.slice(0, -1), [input.at(-1), wanted]]);
      const [[token, best], [, second]] = [...output[input.length - 1].next.logits];
      steps.push({token, margin: best - second});
      input = [token];
    }
    return steps;
  });
}
