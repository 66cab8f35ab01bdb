// Distances between two programs' logits: arrays of rows (Float32Array), one for each token.

function logSoftmax(row) {
  let max = -Infinity;
  for (const x of row) max = Math.max(max, x);
  let sum = 0;
  for (const x of row) sum += Math.exp(x - max);
  const shift = max + Math.log(sum);
  return Float64Array.from(row, (x) => x - shift);
}

// Kullback-Leibler divergence of q's distribution from p's, for each token.
export function divergences(p, q) {
  if (p.length === 0 || p.length !== q.length) throw new Error(`${p.length} and ${q.length} rows to compare`);
  return p.map((row, i) => {
    const a = logSoftmax(row);
    const b = logSoftmax(q[i]);
    let sum = 0;
    for (let t = 0; t < a.length; t++) sum += Math.exp(a[t]) * (a[t] - b[t]);
    if (!(sum > -1e-9)) throw new Error(`divergence ${sum} at token ${i}: not finite logits`);
    return Math.max(0, sum);
  });
}

export const mean = (values) => values.reduce((sum, x) => sum + x, 0) / values.length;

export const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(0.5 * (values.length - 1))];

export const largestDifference = (a, b) => a.reduce((worst, x, i) => Math.max(worst, Math.abs(x - b[i])), 0);

// {token, margin}: the likeliest token and how far it is ahead of the next.
export function topTwo(row) {
  let token = 0;
  let second = -Infinity;
  for (let t = 1; t < row.length; t++) {
    if (row[t] > row[token]) {
      second = row[token];
      token = t;
    } else if (row[t] > second) {
      second = row[t];
    }
  }
  return {token, margin: row[token] - second};
}

// Tokens whose likeliest successor differs: {different, unexcused}. A difference is excused where the judge's own
// best two are closer than its noise there: noise[i], the difference that the judge makes to itself.
export function compareTop1(judge, other, noise) {
  let different = 0;
  let unexcused = 0;
  judge.forEach((row, i) => {
    const {token, margin} = topTwo(row);
    if (token === topTwo(other[i]).token) return;
    different++;
    if (margin > 2 * noise[i]) unexcused++;
  });
  return {different, unexcused};
}
