// The charts above the lanes, after Nanoscope: what all threads together did, and the ruler.

import { ink, locked, looks, running } from "./colours.js";
import type { Canvas } from "./dom.js";
import { bytes, moment, steps } from "./format.js";
import type { Plot } from "./plot.js";
import type { Chart } from "./store.js";

export const chartHeight = 40;
export const rulerHeight = 22;

/** Charted is a chart with the time that it is of. */
export interface Charted {
  data: Chart;
  from: number;
  to: number;
}

/** mostStretch is how far the curves' bitmap is stretched or squeezed amid a movement before they are drawn anew. */
const mostStretch = 1.6;

/** Curves are the charts' own bitmap: amid a movement a frame copies it, because thousands of edges cost more than that. */
export class Curves {
  readonly canvas = document.createElement("canvas");
  readonly g = this.canvas.getContext("2d")!;
  private of: { from: number; to: number; data: unknown; width: number } | null = null;

  /** forget makes the next frame draw. */
  forget(): void {
    this.of = null;
  }

  /** serves says whether the bitmap, moved and stretched, will do: amid a movement also one of older data, and in a busy frame any. */
  serves(p: Plot, c: Charted, moving: boolean, busy: boolean): boolean {
    const { from, to } = p.app.shared.state;
    if (!this.of || (this.of.data !== c.data && !moving) || this.of.width !== p.plotWidth()) return false;
    if (moving && busy) return true;
    const stretch = (this.of.to - this.of.from) / (to - from);
    const seen = Math.min(this.of.to, to) - Math.max(this.of.from, from);
    return (this.of.from === from && this.of.to === to) || (moving && stretch < mostStretch && stretch > 1 / mostStretch && seen > (to - from) * 0.7);
  }

  /** begin makes room for the plot as it is now. */
  begin(p: Plot, c: Charted, canvas: Canvas): CanvasRenderingContext2D {
    const { from, to } = p.app.shared.state;
    this.of = { from, to, data: c.data, width: p.plotWidth() };
    this.canvas.width = Math.max(1, Math.round(p.plotWidth() * canvas.density));
    this.canvas.height = canvas.element.height;
    this.g.setTransform(canvas.density, 0, 0, canvas.density, -p.gutter * canvas.density, 0);
    return this.g;
  }

  /** show copies what of the plot's time the bitmap has. */
  show(p: Plot, canvas: Canvas): void {
    if (!this.of) return;
    const { from, to } = p.app.shared.state;
    const [a, b] = [Math.max(this.of.from, from), Math.min(this.of.to, to)];
    if (b <= a) return;
    const per = this.canvas.width / (this.of.to - this.of.from);
    canvas.g.drawImage(this.canvas, (a - this.of.from) * per, 0, (b - a) * per, this.canvas.height, p.x(a), 0, p.x(b) - p.x(a), canvas.height);
  }
}

/**
 * drawCharts draws the curves and, below them, the ruler. hover is where the pointer is, -1 for nowhere. busy says that the frame has painted
 * much already: amid a movement the curves are then left for the next one.
 */
export function drawCharts(p: Plot, canvas: Canvas, c: Charted | null, hover: number, bitmap: Curves, moving: boolean, busy: boolean): void {
  const { g, width, height } = canvas;
  g.clearRect(0, 0, width, height);
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";
  ruler(p, canvas, height - rulerHeight);
  const kept = c !== null && bitmap.serves(p, c, moving, busy);
  const curve2d = c !== null && !kept ? bitmap.begin(p, c, canvas) : null;
  const { about } = p.app.store;
  const curves: { name: string; of?: Float64Array; colour: string; unit: (perNs: number) => string }[] = [
    { name: "CPUs busy", of: c?.data.cpu, colour: looks[running].fill, unit: (v) => (v < 0.095 ? v.toFixed(2) : v.toFixed(1)) },
    { name: "threads at locks", of: c?.data.lock, colour: looks[locked].fill, unit: (v) => (v < 0.095 ? v.toFixed(2) : v.toFixed(1)) },
    { name: "allocated", of: c?.data.alloc, colour: looks[5].fill, unit: (v) => `${bytes(v * 1e9)}/s` },
  ];
  /** most is the highest value of a curve in what is visible, per ns. */
  const most = (of: Float64Array, per: number): number => {
    const { from, to } = p.app.shared.state;
    let m = 0;
    for (let i = Math.max(0, Math.floor((from - c!.from) / per)); i < of.length && c!.from + i * per <= to; i++) m = Math.max(m, of[i] / per);
    return m;
  };
  if (c && curve2d) {
    curves.forEach(({ of, colour }, n) => {
      const m = most(of!, (c.to - c.from) / of!.length);
      area(p, curve2d, c, of!, n === 0 ? Math.max(m, Math.min(about.cpus || 1, Math.max(1, Math.ceil(m)))) : m, (n + 1) * chartHeight - 4, colour);
    });
  }
  if (c) bitmap.show(p, canvas);
  curves.forEach((curve, n) => {
    const y = n * chartHeight;
    g.fillStyle = ink("soft");
    g.textAlign = "left";
    g.fillText(curve.name, 10, y + 13);
    if (!c || !curve.of) return;
    const cols = curve.of.length;
    const per = (c.to - c.from) / cols;
    const top = most(curve.of, per);
    g.fillText(top > 0 ? `max ${curve.unit(top)}` : "none", 10, y + 28);
    const bottom = y + chartHeight - 4;
    g.fillStyle = ink("line");
    g.fillRect(p.gutter, bottom, p.plotWidth(), 1);
    if (hover >= 0) {
      const i = Math.floor((p.time(hover) - c.from) / per);
      if (i >= 0 && i < cols && hover > p.gutter) {
        const text = curve.unit(curve.of[i] / per);
        g.fillStyle = ink("text");
        g.textAlign = hover > width - 90 ? "right" : "left";
        g.fillText(text, hover + (g.textAlign === "left" ? 6 : -6), y + 9);
        g.textAlign = "left";
      }
    }
  });
}

/** area fills what is below a curve whose highest value is top. */
function area(p: Plot, g: CanvasRenderingContext2D, c: Charted, of: Float64Array, top: number, bottom: number, colour: string): void {
  const per = (c.to - c.from) / of.length;
  g.save();
  g.beginPath();
  g.rect(p.gutter, bottom + 4 - chartHeight, p.plotWidth(), chartHeight);
  g.clip();
  g.beginPath();
  g.moveTo(p.x(c.from), bottom);
  for (let i = 0; i < of.length; i++) {
    const v = top > 0 ? (of[i] / per / top) * (chartHeight - 9) : 0;
    g.lineTo(p.x(c.from + i * per), bottom - v);
    g.lineTo(p.x(c.from + (i + 1) * per), bottom - v);
  }
  g.lineTo(p.x(c.to), bottom);
  g.closePath();
  g.fillStyle = colour;
  g.globalAlpha = 0.75;
  g.fill();
  g.restore();
}

function ruler(p: Plot, canvas: Canvas, y: number): void {
  const { g } = canvas;
  const { from, to } = p.app.shared.state;
  const { step, first } = steps(from, to, p.plotWidth() / 90);
  g.textAlign = "center";
  for (let t = first; t <= to; t += step) {
    const x = p.x(t);
    g.fillStyle = ink("line");
    g.fillRect(x, y, 1, 6);
    g.fillStyle = ink("soft");
    g.fillText(moment(t, step), Math.min(x, canvas.width - 24), y + 14);
  }
  g.textAlign = "left";
}
