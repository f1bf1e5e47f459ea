// The calls of a lane that is open: a row for each depth.

import { ink, ofFrame } from "./colours.js";
import { type Canvas, ellipsis } from "./dom.js";
import { short } from "./format.js";
import { type Plot, rowHeight } from "./plot.js";
import type { Calls } from "./store.js";

const mostDepth = 40;

/** depthOf tells how many outer calls to leave out, and how many rows remain. */
export function depthOf(calls: Calls, r: [number, number]): [number, number] {
  const only: (number | undefined)[] = [];
  const several: boolean[] = [];
  let deepest = 0;
  for (let i = r[0]; i < r[1]; i++) {
    const d = calls.depth[i];
    deepest = Math.max(deepest, d);
    if (only[d] === undefined) only[d] = calls.frame[i];
    else if (only[d] !== calls.frame[i]) several[d] = true;
  }
  let skip = 0;
  while (skip < deepest && !several[skip]) skip++;
  skip = Math.max(0, skip - 1);
  return [skip, Math.min(mostDepth, deepest + 1 - skip)];
}

/** drawCalls draws rows [r[0], r[1]) of calls, skip outer ones left out, depth rows high. */
export function drawCalls(p: Plot, canvas: Canvas, calls: Calls, r: [number, number], l: { depth: number; skip: number }, y: number, needle: string): void {
  const { g } = canvas;
  const { from, to } = p.app.shared.state;
  const per = p.plotWidth() / (to - from);
  g.save();
  g.beginPath();
  g.rect(p.gutter, y, p.plotWidth(), l.depth * rowHeight);
  g.clip();
  g.font = "11px system-ui, sans-serif";
  for (let i = r[0]; i < r[1]; i++) {
    const depth = calls.depth[i] - l.skip;
    if (depth < 0 || depth >= l.depth) continue;
    const a = p.x(calls.start[i]);
    const w = Math.max(0.75, calls.dur[i] * per);
    if (a + w < p.gutter || a > canvas.width) continue;
    const f = p.app.store.places.frames[calls.frame[i]];
    const top = y + depth * rowHeight;
    g.globalAlpha = calls.count[i] > 0 ? 0.6 : 1;
    g.fillStyle = needle && f.n.toLowerCase().includes(needle) ? ink("find") : ofFrame(f.n, f.m);
    g.fillRect(a, top, Math.max(0.75, w - 0.6), rowHeight - 1);
    g.globalAlpha = 1;
    const left = Math.max(a, p.gutter);
    const room = Math.min(a + w, canvas.width) - left - 6;
    if (room > 18) {
      g.fillStyle = ink("frame-text");
      g.fillText(ellipsis(g, short(f.n), room), left + 3, top + rowHeight / 2);
    }
  }
  g.restore();
  if (l.skip > 0) {
    g.fillStyle = ink("soft");
    g.textAlign = "right";
    g.fillText(`${l.skip} outer hidden`, p.gutter - 9, y + rowHeight / 2);
    g.textAlign = "left";
  }
}
