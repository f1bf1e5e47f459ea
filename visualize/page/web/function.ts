// The details of one function in the flame graph: how much it weighs, its heaviest lines with their source, its callers and callees, and
// buttons that hide or collapse it.

import type { App } from "./app.js";
import { fill, h, table } from "./dom.js";
import { exactly } from "./find.js";
import { percent, short, whole } from "./format.js";
import { fileLine } from "./piece.js";
import type { Rows, Source } from "./store.js";
import { around, type Cut, functions, type Node, type Shape, type Spot, spots } from "./tree.js";

const mostCalls = 12;
const mostSpots = 40; // lines with weight
const context = 3; // lines before and after them
const mostSource = 2000; // lines, asked for at once

/** Chosen is the function and the tree that it is in. */
export interface Chosen {
  root: Node; // not inverted
  rows: Rows;
  shape: Shape;
  name: string;
  format(x: number): string;
  /** Adds a function or module to those that are hidden or collapsed. */
  add(option: keyof Cut, name: string): void;
}

/** heaviestLine is :line of a node's heaviest line, to stand behind its file; "" where no line is known. */
export function heaviestLine(n: Node): string {
  let most = 0;
  let line = 0;
  for (const [l, w] of n.lines) if (w > most) [line, most] = [l, w];
  return line > 0 ? `:${line}` : "";
}

/** aboutFunction is the panel; null where the function is in no stack. */
export function aboutFunction(app: App, c: Chosen): HTMLElement | null {
  const a = around(c.root, c.name);
  if (a.total === 0) return null;
  const module = functions(c.root).find((l) => l.name === c.name)?.module;
  const list = (title: string, rows: [string, number][]): HTMLElement => h("div", {}, h("h3", {}, title),
    rows.length === 0
      ? h("p", { class: "soft" }, "none")
      : table(["total", "share", "function"], rows.slice(0, mostCalls).map(([n, w]) => [
          c.format(w), percent(w, a.total),
          n === "(outermost)" ? n : h("button", { type: "button", class: "link", title: whole(n), on: { click: () => app.shared.set({ find: exactly(n) }) } }, short(n)),
        ]), [0, 1], `${title} of ${short(c.name)}`));
  const button = (option: keyof Cut, what: string, text: string, title: string): HTMLElement =>
    h("button", { type: "button", title, on: { click: () => c.add(option, what) } }, text);
  return h("div", { class: "butterfly" },
    h("h2", {}, short(c.name)),
    h("p", {}, `${c.format(a.total)}, ${percent(a.total, c.root.total)} of all; ${c.format(a.self)} itself`),
    h("div", { class: "row" },
      button("hide", c.name, "Hide function", "leave this function out of stacks: its weight falls on its callers"),
      module ? button("hidelib", module, "Hide its library", `leave all functions of ${module} out of stacks`) : null,
      button("fold", c.name, "Collapse function", "show this function without what it calls"),
      module ? button("foldlib", module, "Collapse its library", `show the functions of ${module} that call each other as one`) : null),
    lines(app, c, a.total), list("Callers", a.callers), list("Callees", a.callees));
}

/** lines are the function's lines that weigh something, and their source as soon as it is there. */
function lines(app: App, c: Chosen, total: number): HTMLElement | null {
  const { frame, list } = spots(c.rows, app.store.places, c.shape, c.name);
  if (list.length === 0) return null;
  const { f } = app.store.places.frames[frame];
  const shown = list.slice(0, mostSpots);
  const box = h("div", { class: "lines" });
  const show = (s: Source | null): void => {
    const note = !s ? "" : s.missing ? `No source lines: ${s.missing}.` : s.changed ? "This file was changed after the recording began: its lines may be others." : "";
    fill(box, listing(c, shown, s, total), note !== "" && h("p", { class: s?.changed ? "bad" : "soft" }, whole(note)),
      list.length > shown.length && h("p", { class: "soft" }, `${list.length - shown.length} lines more`));
  };
  show(null);
  const first = Math.max(1, Math.min(...shown.map((x) => x.line)) - context);
  const last = Math.min(first + mostSource - 1, Math.max(...shown.map((x) => x.line)) + context);
  void app.store.source(frame, first, last).then(show, () => undefined);
  return h("div", {}, h("h3", { title: f ? whole(f) : undefined }, `Lines${f ? ` of ${whole(f.slice(f.lastIndexOf("/") + 1))}` : ""}`),
    h("p", {}, h("span", { class: "soft" }, "the heaviest: "), h("b", {}, fileLine(f, list[0].line)), ` ${percent(list[0].total, total)}`), box);
}

/** listing is the lines with weight, among their neighbours where the source is known. */
function listing(c: Chosen, shown: Spot[], s: Source | null, total: number): HTMLElement {
  const text = new Map(s?.lines ?? []);
  const weights = new Map(shown.map((x) => [x.line, x]));
  const numbers = new Set<number>();
  for (const { line } of shown) {
    numbers.add(line);
    for (let n = line - context; n <= line + context; n++) if (text.has(n)) numbers.add(n);
  }
  const indent = Math.min(...[...numbers].map((n) => text.get(n) ?? "").filter((x) => x.trim() !== "").map((x) => x.length - x.trimStart().length));
  const rows: (HTMLElement | string)[][] = [];
  let before = 0;
  for (const n of [...numbers].sort((a, b) => a - b)) {
    if (before > 0 && n > before + 1) rows.push(["", "", "⋮", ""]);
    before = n;
    const w = weights.get(n);
    const share = w ? w.total / total : 0;
    rows.push([
      w && w.self > 0 ? c.format(w.self) : "", w ? c.format(w.total) : "", String(n),
      h("code", { class: w ? "hot" : undefined, css: { "--share": share.toFixed(3) } }, (text.get(n) ?? "").slice(indent)),
    ]);
  }
  return table(["self", "total", "line", "source"], rows, [0, 1, 2], `Lines of ${short(c.name)} by what they weigh`);
}
