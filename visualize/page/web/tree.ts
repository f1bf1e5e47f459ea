// The tree behind a flame graph: functions by path, with what they weigh.

import { ready } from "./colours.js";
import type { Places, Rows } from "./store.js";
import { stateAllocated } from "./store.js";

export interface Node {
  frame: number; // into places.frames; -1: a heading (the root, a thread)
  name: string;
  module?: string;
  self: number;
  total: number;
  base: number; // total in the baseline, scaled to the same sum; 0 without one
  first: number; // when it was first seen, ns
  kids: Map<string, Node>;
  parent: Node | null;
}

export type Value = "cpu" | "wall" | "blocked" | "lock" | "alloc" | "objects";

export const values: { id: Value; name: string; unit: "ns" | "bytes" | "count" }[] = [
  { id: "cpu", name: "CPU", unit: "ns" },
  { id: "wall", name: "Wall", unit: "ns" },
  { id: "blocked", name: "Blocked", unit: "ns" },
  { id: "lock", name: "Locks", unit: "ns" },
  { id: "alloc", name: "Allocated bytes", unit: "bytes" },
  { id: "objects", name: "Allocations", unit: "count" },
];

/** weight of a row for a value; 0: it does not count. */
export function weight(rows: Rows, i: number, v: Value): number {
  const s = rows.state[i];
  switch (v) {
    case "cpu": return s === 1 ? rows.value[i] : 0;
    case "wall": return s !== 2 && s !== ready && s !== stateAllocated ? rows.value[i] : 0;
    case "blocked": return s > 2 && s !== ready && s !== stateAllocated ? rows.value[i] : 0;
    case "lock": return s === 3 ? rows.value[i] : 0;
    case "alloc": return s === stateAllocated ? rows.value[i] : 0;
    case "objects": return s === stateAllocated ? rows.count[i] : 0;
  }
}

function node(frame: number, name: string, module: string | undefined, parent: Node | null): Node {
  return { frame, name, module, self: 0, total: 0, base: 0, first: Infinity, kids: new Map(), parent };
}

export interface Shape {
  value: Value;
  inverted: boolean;
  heading: ((thread: number) => string) | null; // a level for threads
  hidden?: Hidden;
}

/** Hidden are functions and modules that are left out of stacks: their weight falls on their callers. */
export interface Hidden {
  functions: Set<string>;
  modules: Set<string>;
}

/** build makes a tree of sums. */
export function build(rows: Rows, places: Places, shape: Shape): Node {
  const root = node(-1, "all", undefined, null);
  for (let i = 0; i < rows.length; i++) {
    const w = weight(rows, i, shape.value);
    if (w === 0) continue;
    let at = root;
    const enter = (key: string, frame: number, name: string, module?: string): void => {
      let k = at.kids.get(key);
      if (!k) {
        k = node(frame, name, module, at);
        at.kids.set(key, k);
      }
      k.total += w;
      k.first = Math.min(k.first, rows.start[i]);
      at = k;
    };
    root.total += w;
    if (shape.heading) enter(`t${rows.thread[i]}`, -1, shape.heading(rows.thread[i]));
    const path: number[] = [];
    for (let n = places.site[rows.site[i]] ?? 0; n !== 0; n = places.parent[n]) path.push(places.frame[n]);
    const all = path.length;
    if (shape.hidden) {
      const { functions, modules } = shape.hidden;
      const keep = path.filter((f) => !functions.has(places.frames[f].n) && !modules.has(places.frames[f].m ?? ""));
      path.splice(0, all, ...keep);
    }
    if (all === 0) path.push(0);
    if (!shape.inverted) path.reverse();
    for (const f of path) {
      const { n, m } = places.frames[f];
      enter(`${n} ${m ?? ""}`, f, n, m);
    }
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
