// The calls of a lane that is open: a row for each depth.

import { ink, ofFrame } from "./colours.js";
import { type Canvas, ellipsis } from "./dom.js";
import type { Finder } from "./find.js";
import { short } from "./format.js";
import { type Plot, rowHeight } from "./plot.js";
import type { Calls } from "./store.js";

const mostDepth = 40;
const leastCover = 0.004; // of the visible time: rows with less show next to nothing, and are left out below the others
const near = 4; // px: thin calls of one function that lie no further apart are drawn as one

/** Rows of calls that a lane shows. */
export interface Depths {
  skip: number; // outer calls left out: always the same
  rows: number;
  deeper: number; // rows left out below: almost empty
}

/** depthsOf tells which calls to leave out, span being the visible time. */
export function depthsOf(calls: Calls, r: [number, number], span: number): Depths {
  const only: (number | undefined)[] = [];
  const several: boolean[] = [];
  const cover: number[] = [];
  for (let i = r[0]; i < r[1]; i++) {
    const d = calls.depth[i];
    cover[d] = (cover[d] ?? 0) + calls.dur[i];
    if (only[d] === undefined) only[d] = calls.frame[i];
    else if (only[d] !== calls.frame[i]) several[d] = true;
  }
  const deepest = Math.max(0, cover.length - 1);
  let skip = 0;
  while (skip < deepest && !several[skip]) skip++;
  skip = Math.max(0, skip - 1);
  let last = deepest;
  while (last > skip && !((cover[last] ?? 0) >= span * leastCover)) last--;
  const rows = Math.min(mostDepth, last + 1 - skip);
  return { skip, rows, deeper: deepest + 1 - skip - rows };
}

/** Run is one call, or several thin ones of one function next to each other. */
interface Run {
  a: number; // px
  b: number;
  covered: number; // px of it that lie in calls
  frame: number;
  summed: boolean;
}

/** drawCalls draws rows [r[0], r[1]) of calls, l.skip outer ones left out, l.depth rows high. */
export function drawCalls(p: Plot, canvas: Canvas, calls: Calls, r: [number, number], l: { depth: number; skip: number; deeper: number }, y: number, needle: Finder | null): void {
  const { g } = canvas;
  const { from, to } = p.app.shared.state;
  const per = p.plotWidth() / (to - from);
  const end = p.gutter + p.plotWidth();
  g.save();
  g.beginPath();
  g.rect(p.gutter, y, p.plotWidth(), l.depth * rowHeight);
  g.clip();
  g.font = "11px system-ui, sans-serif";
  const draw = (x: Run, depth: number): void => {
    const f = p.app.store.places.frames[x.frame];
    const top = y + depth * rowHeight;
    const w = x.b - x.a;
    g.globalAlpha = x.summed ? 0.35 + 0.5 * Math.min(1, x.covered / w) : 1;
    g.fillStyle = needle?.(f.n) ? ink("find") : ofFrame(f.n, f.m);
    g.fillRect(x.a, top, Math.max(0.75, w - 0.6), rowHeight - 1);
    g.globalAlpha = 1;
    const left = Math.max(x.a, p.gutter);
    const room = Math.min(x.b, end) - left - 6;
    if (room > 18) {
      g.fillStyle = ink("frame-text");
      g.fillText(ellipsis(g, short(f.n), room), left + 3, top + rowHeight / 2);
    }
  };
  const open: (Run | undefined)[] = [];
  for (let i = r[0]; i < r[1]; i++) {
    const depth = calls.depth[i] - l.skip;
    if (depth < 0 || depth >= l.depth) continue;
    const a = p.x(calls.start[i]);
    const w = Math.max(0.75, calls.dur[i] * per);
    if (a + w < p.gutter || a > end) continue;
    const run = open[depth];
    if (run && run.frame === calls.frame[i] && w < near && a - run.b < near && (run.summed || run.b - run.a < near)) {
      run.b = Math.max(run.b, a + w);
      run.covered += w;
      run.summed = true;
      continue;
    }
    if (run) draw(run, depth);
    open[depth] = { a, b: a + w, covered: w, frame: calls.frame[i], summed: calls.count[i] > 0 };
  }
  open.forEach((run, depth) => run && draw(run, depth));
  g.restore();
  g.fillStyle = ink("soft");
  g.textAlign = "right";
  if (l.skip > 0) g.fillText(`${l.skip} outer hidden`, p.gutter - 9, y + rowHeight / 2);
  if (l.deeper > 0 && l.depth > 1) g.fillText(`${l.deeper} deeper`, p.gutter - 9, y + (l.depth - 0.5) * rowHeight);
  g.textAlign = "left";
}
