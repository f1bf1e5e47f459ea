// In which order lanes come.

import type { App } from "./app.js";
import { finder } from "./find.js";
import { locked, running, signaled } from "./colours.js";

/** order is the threads in the order of lanes: grouped by process, the most active first. */
export function order(app: App): number[] {
  const { about } = app.store;
  const { threads, find } = app.shared.state;
  const score = (i: number): number => {
    const t = about.threads[i].total;
    return t[running] + t[locked] + t[5] / 2 + t[signaled] / 1e3 + 1 / (2 + i);
  };
  const byProc = new Map<number, number>();
  about.threads.forEach((t, i) => byProc.set(t.proc, Math.max(byProc.get(t.proc) ?? 0, score(i))));
  const needle = finder(find);
  const all = [...about.threads.keys()].filter(
    (i) => needle === null || !app.shared.option("only", "") || needle(about.threads[i].name),
  );
  const keyed = all.map((i) => ({ i, p: byProc.get(about.threads[i].proc)!, s: score(i) + (threads?.includes(i) ? 1e18 : 0) }));
  keyed.sort((a, b) => b.p - a.p || b.s - a.s);
  return keyed.map((k) => k.i);
}
