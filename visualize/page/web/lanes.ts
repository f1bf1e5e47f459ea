// Painting of lanes. A lane's strip is painted column by column into one bitmap: of each column, how much of its time
// the thread spent in each state, stacked. So a picture costs what its size costs, however many pieces lie behind it.

import { ink, looks, pack, stacking, stateCount } from "./colours.js";
import type { Rows } from "./store.js";

export const stripHeight = 22;

/** index finds each thread's rows: they come in one run per thread. */
export function index(thread: Uint32Array): Map<number, [number, number]> {
  const out = new Map<number, [number, number]>();
  for (let i = 0; i < thread.length; ) {
    let j = i;
    while (j < thread.length && thread[j] === thread[i]) j++;
    out.set(thread[i], [i, j]);
    i = j;
  }
  return out;
}

/** mostStretch is how far a bitmap is stretched or squeezed amid a movement before it is painted anew. */
const mostStretch = 1.6;

export class Strips {
  /** painted is the time that the bitmap shows, and of which rows and lanes. */
  private painted: { from: number; to: number; rows: Rows | null; lanes: string } | null = null;
  private canvas = document.createElement("canvas");
  private g = this.canvas.getContext("2d")!;
  private pixels = new Uint32Array(0);
  private image: ImageData | null = null;
  private share = new Float32Array(0);
  private colours: number[] = [];
  private unknown: [line: number, ground: number] = [0, 0];
  private density = 1;
  private width = 0;
  private height = 0;

  /**
   * serves says whether the bitmap, stretched and moved, will do for a frame amid a movement: a frame then costs a copy of it, whatever
   * lies behind. Anything but the exact time and rows that it was painted for is for movements only: answers that come amid one are
   * painted when the old ones will not do any more.
   */
  serves(from: number, to: number, rows: Rows | null, lanes: string, moving: boolean): boolean {
    const p = this.painted;
    if (!p || p.lanes !== lanes || (p.rows !== rows && (!moving || !p.rows))) return false;
    if (p.from === from && p.to === to) return true;
    const stretch = (p.to - p.from) / (to - from);
    const seen = Math.min(p.to, to) - Math.max(p.from, from);
    return moving && stretch < mostStretch && stretch > 1 / mostStretch && seen > (to - from) * 0.7;
  }

  /** forget makes the next frame paint. */
  forget(): void {
    this.painted = null;
  }

  /** done says what the bitmap shows now. */
  done(from: number, to: number, rows: Rows | null, lanes: string): void {
    this.painted = { from, to, rows, lanes };
    if (this.image) this.g.putImageData(this.image, 0, 0);
  }

  /** show draws strip i at y, for time [from, to) in [x, x + width). */
  show(g: CanvasRenderingContext2D, i: number, x: number, y: number, width: number, from: number, to: number): void {
    const p = this.painted;
    if (!p) return;
    const a = Math.max(p.from, from);
    const b = Math.min(p.to, to);
    if (b <= a) return;
    const per = this.width / (p.to - p.from);
    const on = width / (to - from);
    g.drawImage(this.canvas, (a - p.from) * per, i * this.height, (b - a) * per, this.height, x + (a - from) * on, y, (b - a) * on, stripHeight);
  }

  /**
   * begin makes room for n strips of `width` device pixels. While a recording is being read, time without pieces may only not have been read yet:
   * it has no pattern then.
   */
  begin(width: number, n: number, density: number, reading: boolean): void {
    const height = Math.round(stripHeight * density);
    if (this.canvas.width !== width || this.canvas.height !== height * Math.max(1, n) || !this.image) {
      this.canvas.width = Math.max(1, width);
      this.canvas.height = Math.max(1, height * n);
      this.image = this.g.createImageData(this.canvas.width, this.canvas.height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.pixels.fill(0);
    if (this.share.length !== width * stateCount) this.share = new Float32Array(width * stateCount);
    this.width = width;
    this.height = height;
    this.density = density;
    this.colours = looks.map((l) => pack(l.fill));
    this.unknown = [pack(ink(reading ? "lane" : "hatch")), pack(ink("lane"))];
  }

  /** paint fills strip `at` with rows [a, b) of a thread that lived from start to end; time [from, to) is the strip's width. Null: none are there yet. */
  paint(at: number, rows: Rows | null, a: number, b: number, from: number, to: number, start: number, end: number): void {
    const { width, height, share, pixels } = this;
    share.fill(0);
    const per = width / (to - from);
    for (let i = a; rows && i < b; i++) {
      const x0 = Math.max(0, (rows.start[i] - from) * per);
      const x1 = Math.min(width, (rows.start[i] + rows.value[i] - from) * per);
      if (x1 <= x0) continue;
      const s = rows.state[i];
      const first = Math.floor(x0);
      const last = Math.min(width - 1, Math.floor(x1));
      if (first === last) {
        share[first * stateCount + s] += x1 - x0;
        continue;
      }
      share[first * stateCount + s] += first + 1 - x0;
      for (let c = first + 1; c < last; c++) share[c * stateCount + s] += 1;
      share[last * stateCount + s] += x1 - last;
    }
    const base = at * height * width;
    const [line, ground] = this.unknown;
    const born = Math.floor((start - from) * per);
    const died = Math.ceil((end - from) * per);
    for (let c = Math.max(0, born); c < Math.min(width, died); c++) {
      let y = height; // from the bottom up
      let sum = 0;
      for (const s of stacking) {
        const v = share[c * stateCount + s];
        if (v <= 0) continue;
        sum += v;
        const top = Math.max(0, Math.round(height * (1 - Math.min(1, sum))));
        const colour = this.colours[s];
        for (; y > top; y--) pixels[base + (y - 1) * width + c] = colour;
      }
      for (; y > 0; y--) pixels[base + (y - 1) * width + c] = hatched(c, y, this.density, line, ground);
    }
  }
}

/** hatched is a pixel of the pattern of time that nothing is known of. */
function hatched(column: number, row: number, density: number, line: number, ground: number): number {
  return (column + row) % Math.round(6 * density) < density ? line : ground;
}
