// What is written before a lane and into its wide pieces.

import { ink, locked, looks, off, signaled } from "./colours.js";
import { ellipsis, widthOf } from "./dom.js";
import type { Finder } from "./find.js";
import { short } from "./format.js";
import { stripHeight } from "./lanes.js";
import type { Plot } from "./plot.js";
import type { Rows } from "./store.js";

/** pieceTexts writes into wide pieces what they are, and marks those whose place is searched for. */
export function pieceTexts(p: Plot, g: CanvasRenderingContext2D, rows: Rows, r: [number, number], y: number, needle: Finder | null): void {
  const { from, to } = p.app.shared.state;
  const per = p.plotWidth() / (to - from);
  const { places } = p.app.store;
  g.font = "11px system-ui, sans-serif";
  for (let i = r[0]; i < r[1]; i++) {
    const px = rows.value[i] * per;
    if (px < 26) continue;
    const a = Math.max(p.gutter, p.x(rows.start[i]));
    const b = Math.min(p.gutter + p.plotWidth(), p.x(rows.start[i] + rows.value[i]));
    if (b - a < 26) continue;
    const s = rows.state[i];
    if (rows.count[i] > 1 && s === off) continue;
    const place = ((s === locked || s === signaled) && places.called(rows.object[i])) || places.leaf(rows.site[i]);
    const text = ellipsis(g, short(place), b - a - 10);
    g.fillStyle = looks[s].text;
    if (text) g.fillText(text, a + 5, y + stripHeight / 2 + 0.5);
    if (px > 10) {
      g.fillStyle = ink("bg"); // a hairline between neighbours
      g.globalAlpha = 0.6;
      g.fillRect(b - 0.5, y, 0.75, stripHeight);
      g.globalAlpha = 1;
    }
    if (needle && places.stack(rows.site[i]).some((f) => needle(f.n))) {
      g.strokeStyle = ink("find");
      g.lineWidth = 2;
      g.strokeRect(a + 1, y + 1, b - a - 2, stripHeight - 2);
    }
  }
  g.font = "12px system-ui, sans-serif";
}

/** label writes a lane's name and number before the plot. */
export function label(p: Plot, g: CanvasRenderingContext2D, l: { thread: number; open: boolean }, y: number, selected: boolean): void {
  const t = p.app.store.about.threads[l.thread];
  g.fillStyle = ink("soft");
  g.fillText(l.open ? "▾" : "▸", 7, y + stripHeight / 2);
  g.font = `${selected ? "600 " : ""}12px system-ui, sans-serif`;
  g.fillStyle = selected ? ink("text") : ink("soft");
  const name = t.name || "(no name)";
  const tid = String(t.tid);
  const room = p.gutter - 31;
  // The number is where threads of one name differ; of others the name matters more.
  const both = p.app.alone(l.thread) ? widthOf(g, `${name}  ${tid}`) <= room : true;
  g.fillText(ellipsis(g, name, both ? room - widthOf(g, `  ${tid}`) : room), 22, y + stripHeight / 2);
  g.font = "12px system-ui, sans-serif";
  if (both) {
    g.fillStyle = ink("soft");
    g.textAlign = "right";
    g.fillText(tid, p.gutter - 9, y + stripHeight / 2);
    g.textAlign = "left";
  }
  if (p.app.shared.state.threads?.includes(l.thread)) {
    g.fillStyle = ink("accent");
    g.fillRect(0, y, 3, stripHeight);
  }
}
