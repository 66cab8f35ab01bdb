// The heat map's canvas: a cell an expert, a row a layer. What just happened lights up and fades.
import type { CacheFrame } from './api';

const kFadeMs = 900;
type Colour = [number, number, number];

export class HeatMap {
  private frame: CacheFrame | null = null;
  /** When each cell lit up, and for what. */
  private lit = new Float64Array(0);
  private event: string[] = [];
  private animation = 0;
  private readonly pixels = document.createElement('canvas');
  private readonly observer = new ResizeObserver(() => this.draw());
  private readonly still = matchMedia('(prefers-reduced-motion: reduce)');

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.observer.observe(canvas);
  }

  dispose() {
    this.observer.disconnect();
    cancelAnimationFrame(this.animation);
  }

  show(frame: CacheFrame) {
    const n = frame.layers * frame.experts;
    if (this.lit.length !== n) {
      this.lit = new Float64Array(n).fill(-Infinity);
      this.event = new Array(n).fill('h');
      this.pixels.width = frame.experts;
      this.pixels.height = frame.layers;
    }
    if (frame.frame !== this.frame?.frame) {
      const now = performance.now();
      frame.rows.forEach((row, layer) => {
        for (let expert = 0; expert < row.length; ++expert) {
          const letter = row[expert]!;
          if (letter === '.' || letter === 'r') continue;
          this.lit[layer * frame.experts + expert] = now;
          this.event[layer * frame.experts + expert] = letter;
        }
      });
    }
    this.frame = frame;
    this.draw();
  }

  /** The cell under a point of the canvas, in CSS pixels. */
  cellAt(x: number, y: number): { layer: number; expert: number } | null {
    const p = this.frame;
    if (!p) return null;
    const expert = Math.floor((x / this.canvas.clientWidth) * p.experts);
    const layer = Math.floor((y / this.canvas.clientHeight) * p.layers);
    return expert >= 0 && expert < p.experts && layer >= 0 && layer < p.layers ? { layer, expert } : null;
  }

  private draw() {
    const p = this.frame;
    if (!p) return;
    const style = getComputedStyle(this.canvas);
    const colour = (name: string) => parse(style.getPropertyValue(name));
    const [absent, resident] = [colour('--absent'), colour('--resident')];
    const light: Record<string, Colour> = { h: colour('--hit'), m: colour('--miss'), p: colour('--prefetched') };
    const image = new ImageData(p.experts, p.layers);
    const now = performance.now();
    let glowing = false;
    for (let i = 0; i < this.lit.length; ++i) {
      const base = p.rows[Math.floor(i / p.experts)]![i % p.experts] === '.' ? absent : resident;
      const age = (now - this.lit[i]!) / kFadeMs;
      const glow = age >= 1 ? 0 : this.still.matches ? 1 : 1 - age;
      const top = light[this.event[i]!]!;
      glowing ||= glow > 0;
      for (let c = 0; c < 3; ++c) image.data[4 * i + c] = base[c]! + (top[c]! - base[c]!) * glow;
      image.data[4 * i + 3] = 255;
    }
    this.pixels.getContext('2d')!.putImageData(image, 0, 0);
    const scale = devicePixelRatio;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const context = this.canvas.getContext('2d')!;
    // Cells wider than a pixel keep sharp edges; narrower ones are averaged.
    context.imageSmoothingEnabled = this.canvas.width < p.experts;
    context.drawImage(this.pixels, 0, 0, this.canvas.width, this.canvas.height);
    cancelAnimationFrame(this.animation);
    if (glowing) this.animation = requestAnimationFrame(() => this.draw());
  }
}

function parse(hex: string): Colour {
  const n = parseInt(hex.trim().slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}
