// The tiny synthetic models: one for every quant type, layout and architecture.
const TYPES = [
  'F32', 'F16', 'BF16', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ1_S', 'IQ1_M',
  'IQ2_XXS', 'IQ2_XS', 'IQ2_S', 'IQ3_XXS', 'IQ3_S', 'IQ4_NL', 'IQ4_XS', 'MXFP4',
];
const LAYOUTS = ['ssm-in', 'fused-gate-up', 'tied-output', 'recurrent-layers', 'no-interval', 'mtp'];

const model = (name, ...options) => ({name, options});

export const models = [
  ...TYPES.map((type) => model(type, '--types', `all=${type}`)),
  ...LAYOUTS.map((layout) => model(layout, '--types', 'all=Q8_0', '--layout', layout)),
  model('published mix', '--mix', 'published'),
  model('qwen3moe', '--architecture', 'qwen3moe', '--types', 'all=Q8_0'),
  model('qwen35moe', '--architecture', 'qwen35moe', '--types', 'all=Q8_0'),
  model('qwen35moe mtp', '--architecture', 'qwen35moe', '--types', 'experts=IQ3_XXS,expert-down=IQ4_XS', '--layout', 'mtp'),
];
