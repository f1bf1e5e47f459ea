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

/** drawCharts draws the curves and, below them, the ruler. hover is where the pointer is, -1 for nowhere. */
export function drawCharts(p: Plot, canvas: Canvas, c: Charted | null, hover: number): void {
  const { g, width, height } = canvas;
  g.clearRect(0, 0, width, height);
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";
  ruler(p, canvas, height - rulerHeight);
  const { about } = p.app.store;
  const curves: { name: string; of?: Float64Array; colour: string; unit: (perNs: number) => string }[] = [
    { name: "CPUs busy", of: c?.data.cpu, colour: looks[running].fill, unit: (v) => (v < 0.095 ? v.toFixed(2) : v.toFixed(1)) },
    { name: "threads at locks", of: c?.data.lock, colour: looks[locked].fill, unit: (v) => (v < 0.095 ? v.toFixed(2) : v.toFixed(1)) },
    { name: "allocated", of: c?.data.alloc, colour: looks[5].fill, unit: (v) => `${bytes(v * 1e9)}/s` },
  ];
  curves.forEach((curve, n) => {
    const y = n * chartHeight;
    g.fillStyle = ink("soft");
    g.textAlign = "left";
    g.fillText(curve.name, 10, y + 13);
    if (!c || !curve.of) return;
    const cols = curve.of.length;
    const per = (c.to - c.from) / cols;
    let most = 0;
    for (let i = 0; i < cols; i++) {
      const t = c.from + i * per;
      if (t + per >= p.app.shared.state.from && t <= p.app.shared.state.to) most = Math.max(most, curve.of[i] / per);
    }
    const top = n === 0 ? Math.max(most, Math.min(about.cpus || 1, Math.max(1, Math.ceil(most)))) : most;
    g.fillText(most > 0 ? `max ${curve.unit(most)}` : "none", 10, y + 28);
    g.save();
    g.beginPath();
    g.rect(p.gutter, y, p.plotWidth(), chartHeight);
    g.clip();
    g.beginPath();
    const bottom = y + chartHeight - 4;
    g.moveTo(p.x(c.from), bottom);
    for (let i = 0; i < cols; i++) {
      const v = top > 0 ? (curve.of[i] / per / top) * (chartHeight - 9) : 0;
      g.lineTo(p.x(c.from + i * per), bottom - v);
      g.lineTo(p.x(c.from + (i + 1) * per), bottom - v);
    }
    g.lineTo(p.x(c.to), bottom);
    g.closePath();
    g.fillStyle = curve.colour;
    g.globalAlpha = 0.75;
    g.fill();
    g.restore();
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
