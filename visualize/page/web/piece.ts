// The panel about one piece of time: what it was, who held what was waited for and what they did meanwhile, who let
// go, and the chain behind it.

import type { App } from "./app.js";
import { locked, looks, off, running, signaled } from "./colours.js";
import { fill, h } from "./dom.js";
import { exactly } from "./find.js";
import { between, count, duration, percent, short, whole } from "./format.js";
import type { Ready, Rows } from "./store.js";
import { where } from "./summary.js";

const flags: [number, string][] = [
  [1 << 5, "ended by its time-out: nobody released it"],
  [1 << 4, "interrupted by a signal"],
  [1 << 6, "ended in an error"],
  [1 << 8, "had not ended when the recording did"],
  [1 << 0, "the stack is cut: callers are missing at its root"],
  [1 << 1, "a frame of the stack is estimated"],
];
const certain = 1 << 9;
const mostChain = 6;

/** fileLine is a place in the source, without the file's folders; "" where it is not known. */
export function fileLine(file: string | undefined, line: number): string {
  return file && line > 0 ? `${whole(file.slice(file.lastIndexOf("/") + 1))}:${line}` : "";
}

/** stackList shows a site's functions, the innermost first. */
export function stackList(app: App, site: number, most = 24): HTMLElement {
  const stack = app.store.places.stack(site);
  const lines = app.store.places.lines(site);
  if (stack.length === 0) return h("p", { class: "soft" }, "no stack was taken");
  return h(
    "ol",
    { class: "stack" },
    ...stack.slice(0, most).map((f, i) =>
      h("li", { title: `${whole(f.n)}${f.f ? `\n${whole(f.f)}${lines[i] > 0 ? `:${lines[i]}` : ""}` : ""}` },
        h("button", { type: "button", class: "link", on: { click: () => app.shared.set({ find: exactly(f.n) }) } }, short(f.n)),
        h("small", {}, fileLine(f.f, lines[i]) || f.m)),
    ),
    stack.length > most && h("li", { class: "soft" }, `${stack.length - most} more`),
  );
}

/** bar divides a width by states. */
export function bar(parts: [number, number][], total: number): HTMLElement {
  return h(
    "div",
    { class: "bar", role: "img", "aria-label": parts.map(([s, ns]) => `${looks[s].brief} ${percent(ns, total)}`).join(", ") },
    ...parts.filter(([, ns]) => ns > 0).map(([s, ns]) =>
      h("i", { title: `${looks[s].brief} ${duration(ns)}`, css: { background: looks[s].css, width: `${(100 * ns) / Math.max(1, total)}%` } })),
  );
}

/** byState sums rows. */
export function byState(rows: Rows): [number, number][] {
  const sum = looks.map(() => 0);
  for (let i = 0; i < rows.length; i++) if (rows.state[i] < sum.length) sum[rows.state[i]] += rows.value[i];
  return sum.map((ns, s) => [s, ns] as [number, number]).filter(([, ns]) => ns > 0);
}

/** readyText says for how long a thread was runnable without a CPU within a time of `all` ns; "" where that is not known. */
export function readyText(r: Ready, all: number): string {
  const text = r.thread.length > 0 ? between(r.least[0], r.most[0], all) : "";
  return text && `Runnable without a CPU, by the kernel’s count: ${text}.`;
}

/** aboutPiece is the panel for row i. Row and rows may be gone later: what is needed is taken now. */
export function aboutPiece(app: App, rows: Rows, i: number): HTMLElement {
  const { places } = app.store;
  const thread = rows.thread[i];
  const [start, ns] = [rows.start[i], rows.value[i]];
  const state = rows.state[i];
  const box = h("div", { class: "about-piece" });
  const several = rows.count[i] > 1 && rows.site[i] === 0;
  const link = (t: number): HTMLElement =>
    h("button", { type: "button", class: "link", on: { click: () => app.goTo(t, start, start + ns) } }, app.threadName(t));
  box.append(
    h("h2", {}, h("i", { class: "dot", css: { background: looks[state].css } }), app.threadName(thread)),
    h("p", { class: "lead" }, `${duration(ns)} ${looks[state].name}${rows.object[i] ? `: ${places.object(rows.object[i])}` : ""}`),
  );
  if (several) {
    box.append(h("p", { class: "soft" }, `${count(rows.count[i])} pieces too short to show one by one are added up here. Zoom in to see them.`));
    return box;
  }
  const facts: [string, Node | string][] = [["from", `+${duration(start)}`]];
  if (rows.owner[i]) facts.push([state === locked ? "held by" : "owner", link(rows.owner[i] - 1)]);
  if (rows.releaser[i]) {
    const sure = rows.flags[i] & certain ? "" : " (the likeliest of several)";
    const at = rows.release[i] >= 0 ? `, ${duration(start + ns - rows.release[i])} before it went on` : "";
    facts.push([state === locked ? "released last by" : "released by", h("span", {}, link(rows.releaser[i] - 1), sure, at)]);
  }
  if (rows.releaseSite[i]) facts.push([rows.owner[i] && state === locked ? "holder released it in" : "released in", where(places, rows.releaseSite[i])]);
  for (const [bit, text] of flags) if (rows.flags[i] & bit) facts.push(["note", text]);
  box.append(h("dl", {}, ...facts.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])));
  box.append(
    h("div", { class: "row" },
      h("button", { type: "button", on: { click: () => app.shared.zoomTo(start - ns * 0.3, start + ns * 1.3) } }, "Zoom to it"),
      h("button", { type: "button", on: { click: () => app.shared.set({ picked: [Math.floor(start), Math.ceil(start + ns)] }) } }, "Select its time")),
  );
  if (state === off) {
    const counted = h("p", { class: "soft" });
    box.append(counted);
    void app.store.ready([thread], start, start + ns).then((r) => fill(counted, readyText(r, ns)), () => undefined);
  }
  const blocker = rows.owner[i] || rows.releaser[i];
  if (blocker && (state === locked || state === signaled)) {
    const chain = h("div", { class: "chain" });
    box.append(h("h3", {}, `Meanwhile ${app.threadName(blocker - 1)}`), chain);
    void meanwhile(app, chain, blocker - 1, start, start + ns, new Set([thread]), 0);
  }
  box.append(h("h3", {}, state === running ? "Ran" : state === off ? "Was last seen" : "Waited in"), stackList(app, rows.site[i]));
  if (rows.releaseSite[i] && blocker) box.append(h("h3", {}, `${app.threadName(blocker - 1)} released in`), stackList(app, rows.releaseSite[i]));
  return box;
}

/** meanwhile tells what a thread did during somebody's wait, and follows the chain where it waited itself. */
async function meanwhile(app: App, into: HTMLElement, thread: number, from: number, to: number, seen: Set<number>, depth: number): Promise<void> {
  let rows: Rows;
  try {
    rows = await app.store.sums([thread], from, to, true, true);
  } catch (e) {
    fill(into, h("p", { class: "soft" }, e instanceof Error ? e.message : String(e)));
    return;
  }
  const { places } = app.store;
  const parts = byState(rows);
  const known = parts.reduce((n, [, ns]) => n + ns, 0);
  const order = [...rows.value.keys()].sort((a, b) => rows.value[b] - rows.value[a]);
  fill(
    into,
    bar([...parts, [0, Math.max(0, to - from - known)]], to - from),
    h("ul", { class: "meanwhile" },
      ...order.slice(0, 6).map((i) => {
        const leaf = short(places.leaf(rows.site[i]));
        const place = rows.site[i] === 0 ? "" : rows.state[i] === running ? ` in ${leaf}` : ` ${leaf} in ${where(places, rows.site[i])}`;
        const what = rows.object[i] ? ` for ${places.object(rows.object[i])}` : "";
        return h("li", {}, h("i", { class: "dot", css: { background: looks[rows.state[i]].css } }),
          h("b", {}, duration(rows.value[i])), ` ${looks[rows.state[i]].brief}${place}${what}`);
      }),
      order.length === 0 && h("li", { class: "soft" }, "nothing was recorded of it in that time")),
  );
  const next = order.find((i) => rows.state[i] === locked && (rows.owner[i] || rows.releaser[i]) > 0);
  if (next === undefined || depth >= mostChain) return;
  const holder = (rows.owner[next] || rows.releaser[next]) - 1;
  if (holder === thread) return;
  if (seen.has(thread)) {
    into.append(h("p", { class: "soft" }, "and so back to a thread that is in this chain already"));
    return;
  }
  const more = h("div", { class: "chain" });
  into.append(h("p", {}, "which itself waited ", h("b", {}, duration(rows.value[next])), ` for ${app.threadName(holder)}, who meanwhile`), more);
  await meanwhile(app, more, holder, from, to, new Set([...seen, thread]), depth + 1);
}
