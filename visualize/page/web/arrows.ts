// Arrows between lanes.

import { ink, locked } from "./colours.js";
import type { Canvas } from "./dom.js";
import type { Plot } from "./plot.js";
import type { Rows } from "./store.js";

/** Selected is the piece that was chosen. */
export interface Selected {
  thread: number;
  start: number;
  end: number;
}

/**
 * drawArrows draws from releaser to waiter: those of the widest waits, so that they stay few. at is each lane's middle. Where
 * they are many, those of thread `near`, under the pointer, stand out (-1: of none).
 */
export function drawArrows(p: Plot, canvas: Canvas, rows: Rows, at: Map<number, number>, s: Selected | null, near: number): void {
  const { from, to } = p.app.shared.state;
  const per = p.plotWidth() / (to - from);
  const list: number[] = [];
  for (let i = 0; i < rows.length; i++) {
    if (rows.releaser[i] === 0 || rows.release[i] < 0 || rows.value[i] * per < 5) continue;
    const end = rows.start[i] + rows.value[i];
    if (end < from || rows.release[i] > to || !at.has(rows.thread[i]) || !at.has(rows.releaser[i] - 1)) continue;
    list.push(i);
  }
  list.sort((a, b) => rows.value[b] - rows.value[a]);
  const { g } = canvas;
  g.save();
  g.beginPath();
  g.rect(p.gutter, 0, p.plotWidth(), canvas.height);
  g.clip();
  for (const i of list.slice(0, 160).reverse()) {
    const chosen = s !== null && s.thread === rows.thread[i] && s.start === rows.start[i];
    const x0 = p.x(rows.release[i]);
    const y0 = at.get(rows.releaser[i] - 1)!;
    const x1 = p.x(rows.start[i] + rows.value[i]);
    const y1 = at.get(rows.thread[i])!;
    if (y0 === y1) continue;
    const mine = near >= 0 && (rows.thread[i] === near || rows.releaser[i] - 1 === near);
    g.globalAlpha = chosen ? 1 : mine ? 0.9 : (rows.state[i] === locked ? 0.75 : 0.3) * Math.max(0.3, Math.min(1, 24 / list.length));
    g.strokeStyle = g.fillStyle = ink("arrow");
    g.lineWidth = chosen ? 2.5 : 1.2;
    g.setLineDash(rows.flags[i] & 512 ? [] : [4, 3]);
    const bend = Math.max(10, Math.min(40, Math.abs(y1 - y0) / 3));
    g.beginPath();
    g.moveTo(x0, y0);
    g.bezierCurveTo(x0 + bend, y0, x1 + bend, y1 + (y0 - y1) * 0.3, x1, y1 + Math.sign(y0 - y1) * 7);
    g.stroke();
    g.setLineDash([]);
    g.beginPath();
    const dir = Math.sign(y0 - y1);
    g.moveTo(x1, y1 + dir * 3);
    g.lineTo(x1 - 2.5, y1 + dir * 9);
    g.lineTo(x1 + 4, y1 + dir * 8);
    g.fill();
    g.beginPath();
    g.arc(x0, y0, 2.5, 0, 7);
    g.fill();
  }
  g.restore();
}
