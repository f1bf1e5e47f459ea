// The tree behind a flame graph: functions by path, with what they weigh.

import { locked, ready, running } from "./colours.js";
import type { About, Places, Rows } from "./store.js";
import { stateAllocated, stateInUse } from "./store.js";

export interface Node {
  frame: number; // into places.frames; -1: a heading (the root, a thread)
  name: string;
  module?: string;
  self: number;
  total: number;
  base: number; // total in the baseline, scaled to the same sum; 0 without one
  first: number; // when it was first seen, ns
  lines: Map<number, number>; // weight by line of the function's file
  kids: Map<string, Node>;
  parent: Node | null;
}

export type Value = "cpu" | "wall" | "blocked" | "lock" | "alloc" | "objects" | "inuse" | "live";

export const values: { id: Value; name: string; unit: "ns" | "bytes" | "count" }[] = [
  { id: "cpu", name: "CPU", unit: "ns" },
  { id: "wall", name: "Wall", unit: "ns" },
  { id: "blocked", name: "Blocked", unit: "ns" },
  { id: "lock", name: "Locks", unit: "ns" },
  { id: "alloc", name: "Allocated bytes", unit: "bytes" },
  { id: "objects", name: "Allocations", unit: "count" },
  { id: "inuse", name: "Bytes in use", unit: "bytes" },
  { id: "live", name: "Allocations in use", unit: "count" },
];

/**
 * heaviestValue is what a recording's flame graph shows unless something is chosen: CPU time; time waited for locks where that is more;
 * and all blocked time where next to nothing ran.
 */
export function heaviestValue(about: About): Value {
  const sum = (keep: (state: number) => boolean): number =>
    about.threads.reduce((n, t) => n + t.total.reduce((m, ns, s) => (keep(s) ? m + ns : m), 0), 0);
  const cpu = sum((s) => s === running);
  if (sum((s) => s === locked) > cpu) return "lock";
  return cpu < about.length * leastCPU && sum((s) => s > locked && s !== ready) > cpu ? "blocked" : "cpu";
}

const leastCPU = 0.02; // of the recording's time

/** weight of a row for a value; 0: it does not count. */
export function weight(rows: Rows, i: number, v: Value): number {
  const s = rows.state[i];
  switch (v) {
    case "cpu": return s === 1 ? rows.value[i] : 0;
    case "wall": return s !== 2 && s !== ready && s < stateAllocated ? rows.value[i] : 0;
    case "blocked": return s > 2 && s !== ready && s < stateAllocated ? rows.value[i] : 0;
    case "lock": return s === 3 ? rows.value[i] : 0;
    case "alloc": return s === stateAllocated ? rows.value[i] : 0;
    case "objects": return s === stateAllocated ? rows.count[i] : 0;
    case "inuse": return s === stateInUse ? rows.value[i] : 0;
    case "live": return s === stateInUse ? rows.count[i] : 0;
  }
}

function node(frame: number, name: string, module: string | undefined, parent: Node | null): Node {
  return { frame, name, module, self: 0, total: 0, base: 0, first: Infinity, lines: new Map(), kids: new Map(), parent };
}

export interface Shape {
  value: Value;
  inverted: boolean;
  heading: ((thread: number) => string) | null; // a level for threads
  cut: Cut;
}

/**
 * Cut is what stacks are shown without. The weight of a hidden function falls on its callers. A collapsed function keeps the weight of
 * what it calls, and calls of a collapsed module from one to another of its functions become one.
 */
export interface Cut {
  hide: Set<string>; // functions
  hidelib: Set<string>; // modules
  fold: Set<string>;
  foldlib: Set<string>;
}

export const uncut: Cut = { hide: new Set(), hidelib: new Set(), fold: new Set(), foldlib: new Set() };

/** Step is one function of a stack. */
interface Step {
  frame: number;
  line: number;
  name: string;
  module?: string;
}

/** steps gives the functions of a site as they are shown, the outermost first. */
function steps(places: Places, site: number, cut: Cut): Step[] {
  const all: Step[] = [];
  for (let n = places.site[site] ?? 0; n !== 0; n = places.parent[n]) {
    const frame = places.frame[n];
    all.push({ frame, line: places.line[n], name: places.frames[frame].n, module: places.frames[frame].m });
  }
  if (all.length === 0) return [{ frame: 0, line: 0, name: places.frames[0].n }];
  all.reverse();
  if (cut.hide.size + cut.hidelib.size + cut.fold.size + cut.foldlib.size === 0) return all;
  const out: Step[] = [];
  for (const x of all) {
    const last = out[out.length - 1];
    if (last && (cut.fold.has(last.name) || (cut.foldlib.has(x.module ?? "") && last.name === collapsed(x.module)))) {
      if (cut.fold.has(last.name)) break;
      continue;
    }
    if (cut.hide.has(x.name) || cut.hidelib.has(x.module ?? "")) continue;
    out.push(cut.foldlib.has(x.module ?? "") ? { ...x, line: 0, name: collapsed(x.module) } : x);
  }
  return out;
}

/** collapsed is the name of a module's functions together. */
function collapsed(module: string | undefined): string {
  return `[${module ?? ""}]`;
}

/** build makes a tree of sums. */
export function build(rows: Rows, places: Places, shape: Shape): Node {
  const root = node(-1, "all", undefined, null);
  for (let i = 0; i < rows.length; i++) {
    const w = weight(rows, i, shape.value);
    if (w === 0) continue;
    let at = root;
    const enter = (key: string, x: Step): void => {
      let k = at.kids.get(key);
      if (!k) {
        k = node(x.frame, x.name, x.module, at);
        at.kids.set(key, k);
      }
      k.total += w;
      k.first = Math.min(k.first, rows.start[i]);
      if (x.line > 0) k.lines.set(x.line, (k.lines.get(x.line) ?? 0) + w);
      at = k;
    };
    root.total += w;
    if (shape.heading) enter(`t${rows.thread[i]}`, { frame: -1, line: 0, name: shape.heading(rows.thread[i]) });
    const path = steps(places, rows.site[i], shape.cut);
    if (shape.inverted) path.reverse();
    for (const x of path) enter(`${x.name} ${x.module ?? ""}`, x);
    if (!shape.inverted || path.length === 0) at.self += w;
    else selfOf(at, path.length).self += w;
  }
  return root;
}

/** selfOf is, in an inverted tree, the node of the innermost function: that which has `up` levels below. */
function selfOf(at: Node, up: number): Node {
  for (let i = 1; i < up; i++) at = at.parent!;
  return at;
}

/** compare sets base in tree to what baseline has there, scaled to the same total. What only baseline has is added. */
export function compare(tree: Node, baseline: Node): void {
  const scale = baseline.total > 0 ? tree.total / baseline.total : 0;
  const visit = (t: Node, b: Node): void => {
    t.base = b.total * scale;
    for (const [key, kb] of b.kids) {
      let kt = t.kids.get(key);
      if (!kt) {
        kt = node(kb.frame, kb.name, kb.module, t);
        t.kids.set(key, kt);
      }
      visit(kt, kb);
    }
  };
  visit(tree, baseline);
}

export type Order = "heavy" | "time" | "name";

/** children in the order in which they are drawn. */
export function children(n: Node, order: Order): Node[] {
  const list = [...n.kids.values()];
  if (order === "heavy") list.sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1));
  else if (order === "time") list.sort((a, b) => a.first - b.first);
  else list.sort((a, b) => (a.name < b.name ? -1 : 1));
  return list;
}

export interface Line {
  name: string;
  module?: string;
  self: number;
  total: number;
}

/** functions sums a tree that is not inverted by function; recursion counts once. */
export function functions(root: Node): Line[] {
  const lines = new Map<string, Line>();
  const open = new Map<string, number>();
  const visit = (n: Node): void => {
    const key = `${n.name} ${n.module ?? ""}`;
    const counts = n.frame >= 0;
    if (counts) {
      let l = lines.get(key);
      if (!l) lines.set(key, (l = { name: n.name, module: n.module, self: 0, total: 0 }));
      l.self += n.self;
      const depth = open.get(key) ?? 0;
      if (depth === 0) l.total += n.total;
      open.set(key, depth + 1);
    }
    for (const k of n.kids.values()) visit(k);
    if (counts) open.set(key, open.get(key)! - 1);
  };
  visit(root);
  return [...lines.values()].sort((a, b) => b.self - a.self || b.total - a.total);
}

/** Spot is a line of a function: how much it weighs by itself, and with what it calls. */
export interface Spot {
  line: number;
  self: number;
  total: number;
}

/** spots gives the lines of a function that weigh something, the heaviest first. Of recursion the outermost call counts. */
export function spots(rows: Rows, places: Places, shape: Shape, name: string): { frame: number; list: Spot[] } {
  const by = new Map<number, Spot>();
  let frame = -1;
  for (let i = 0; i < rows.length; i++) {
    const w = weight(rows, i, shape.value);
    if (w === 0) continue;
    const path = steps(places, rows.site[i], shape.cut);
    const at = path.findIndex((x) => x.name === name);
    if (at < 0) continue;
    frame = path[at].frame;
    const spot = (line: number): Spot => {
      const s = by.get(line) ?? { line, self: 0, total: 0 };
      by.set(line, s);
      return s;
    };
    if (path[at].line > 0) spot(path[at].line).total += w;
    const leaf = path[path.length - 1];
    if (leaf.name === name && leaf.line > 0) spot(leaf.line).self += w;
  }
  return { frame, list: [...by.values()].sort((a, b) => b.total - a.total || b.self - a.self) };
}

/** Around is a function's callers and callees, the heaviest first. */
export interface Around {
  total: number;
  self: number;
  callers: [string, number][];
  callees: [string, number][];
}

/** around sums what called a function of a tree that is not inverted, and what it called. Of recursion the outermost call counts. */
export function around(root: Node, name: string): Around {
  const callers = new Map<string, number>();
  const callees = new Map<string, number>();
  const out: Around = { total: 0, self: 0, callers: [], callees: [] };
  const visit = (n: Node): void => {
    if (n.frame < 0 || n.name !== name) {
      for (const k of n.kids.values()) visit(k);
      return;
    }
    out.total += n.total;
    out.self += n.self;
    const by = n.parent && n.parent.frame >= 0 ? n.parent.name : "(outermost)";
    callers.set(by, (callers.get(by) ?? 0) + n.total);
    for (const k of n.kids.values()) callees.set(k.name, (callees.get(k.name) ?? 0) + k.total);
  };
  visit(root);
  out.callers = [...callers].sort((a, b) => b[1] - a[1]);
  out.callees = [...callees].sort((a, b) => b[1] - a[1]);
  return out;
}
