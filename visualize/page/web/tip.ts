// What the tip says about a piece under the pointer.

import type { App } from "./app.js";
import { looks } from "./colours.js";
import { duration, short } from "./format.js";
import type { Rows } from "./store.js";

/** tipOf is what a tip says of a piece. */
export function tipOf(app: App, r: Rows, i: number): string[] {
  const { places } = app.store;
  const s = r.state[i];
  const several = r.count[i] > 1 && r.site[i] === 0;
  const out = [`${duration(r.value[i])} ${looks[s].name}`];
  if (several) out.push(`${r.count[i]} short pieces here: zoom in`);
  if (r.object[i]) out.push(places.object(r.object[i]));
  const leaf = places.leaf(r.site[i]);
  if (leaf) out.push(`in ${short(leaf)}${places.caller(r.site[i]) ? ` ◂ ${short(places.caller(r.site[i]))}` : ""}`);
  if (r.owner[i]) out.push(`held by ${app.threadName(r.owner[i] - 1)}`);
  if (r.releaser[i]) out.push(`released by ${app.threadName(r.releaser[i] - 1)}`);
  return out;
}
