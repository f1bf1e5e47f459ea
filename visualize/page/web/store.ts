// What the views ask. The answer comes from the server that holds the recording (remote.ts), or the data in an exported
// file (embedded.ts). Times are ns since the recording's start; threads are indices into about.threads.

import { meet } from "./colours.js";
import type { Table } from "./table.js";

export interface Thread {
  name: string;
  tid: number;
  proc: number;
  main?: boolean;
  start: number;
  end: number;
  cpu: number;
  total: number[]; // ns by state
  exact: number;
  sampled: number;
  unknown: number;
  stacks: number;
  samples: number;
  ready: number; // ns runnable without a CPU, as the kernel says; -1 unknown
  lost: number;
}

export interface About {
  command: string;
  host: string;
  kernel: string;
  arch: string;
  version: string;
  cpus: number;
  started: string;
  length: number;
  freq: number;
  tickNs: number;
  period: number;
  callNs: number;
  lockNs: number;
  features: string[] | null;
  status: number;
  signal: number;
  hooks: string[];
  threads: Thread[];
  processes: { pid: number; name: string; command: string; doubts: string[] }[];
  stats: Record<string, number> & { Complete: boolean };
  doubt: Record<string, number>;
  notes: string[];
  marks: { at: number; text: string }[];
  read: number;
  events: number;
  done: boolean;
  failed?: string;
  chained: boolean; // chains were looked for
  resolution: number;
}

/** Rows are pieces of time or sums of them; query.go says what each column means. */
export interface Rows {
  length: number;
  thread: Uint32Array;
  start: Float64Array;
  value: Float64Array;
  state: Uint8Array;
  count: Uint32Array;
  site: Uint32Array;
  object: Uint32Array;
  owner: Uint32Array; // thread + 1
  releaser: Uint32Array; // thread + 1
  release: Float64Array; // -1: unknown; in sums by edges the longest wait
  releaseSite: Uint32Array;
  flags: Uint16Array;
}

export interface Calls {
  length: number;
  thread: Uint32Array;
  depth: Uint16Array;
  start: Float64Array;
  dur: Float64Array;
  frame: Uint32Array;
  count: Uint32Array; // 0: one call; otherwise so many, too short to be shown one by one
}

export interface Chart {
  cpu: Float64Array; // ns in each part of the time
  off: Float64Array;
  lock: Float64Array;
  blocked: Float64Array;
  alloc: Float64Array; // bytes
}

export interface Slow {
  seen: number;
  thread: Uint32Array;
  start: Float64Array;
  dur: Float64Array;
}

/** Ready is for how long threads were runnable without a CPU, as the kernel counts it: looks.go. A thread of which nothing is known has no row. */
export interface Ready {
  thread: Uint32Array;
  least: Float64Array; // ns
  most: Float64Array;
}

export interface Frame {
  n: string; // name
  m?: string; // module
  f?: string; // file
  a?: boolean; // an address
}

/** Chains are what waits were spent on: chains.go. Threads are + 1, 0 none. Deadlocks, orders and unfollowed are the whole recording's. */
export interface Chains {
  chains: Chain[];
  rest: { chains: number; ns: number }[]; // left out: of waits for locks, of others
  holding: Holding[];
  deadlocks: { since: number; until: number; threads: Link[] }[];
  inversions: { outer: number; inner: number; thread: number; site: number; count: number }[][];
  names: string[]; // of objects from 1 on; "": there is none better. None in answers about a selection
  unfollowed: number;
  estimated: number; // waits that were followed at some of their instants only
  resolution: number; // ns; parts that are shorter were added up before they were cut to a selection; 0: none
}

export interface Chain {
  ns: number;
  longest: number;
  count: number;
  lock: boolean;
  links: Link[]; // the first is the wait itself
  end: Activity;
}

export interface Link {
  thread: number;
  site: number;
  in: string;
  object: number;
  kind: string;
}

/** Activity is what somebody did while others waited. */
export interface Activity {
  act: string;
  state: number;
  in?: string;
  thread?: number;
  site?: number;
  object?: number;
  ns?: number;
}

export interface Holding {
  thread: number;
  site: number;
  object: number;
  owner: number;
  releaser: number;
  ns: number;
  count: number;
  taken: number; // site
  doing: Activity[];
}

/** Places names what sites, frames and objects stand for. It grows. */
export class Places {
  site: number[] = []; // to its node
  own: number[] = []; // of a site: the innermost function of the program's own in frames, + 1; 0: none
  parent: number[] = [];
  frame: number[] = []; // of a node
  line: number[] = []; // of a node, in its function's file; 0 unknown
  frames: Frame[] = [];
  objects: { n: string; k: string }[] = [{ n: "", k: "" }];
  better: string[] = []; // names of objects from 1 on that are found with chains; "": none

  add(t: Table): void {
    const info = t.info as { frames: Frame[]; objects: { n: string; k: string }[] };
    for (const x of t.columns.site as Uint32Array) this.site.push(x);
    for (const x of t.columns.own as Uint32Array) this.own.push(x);
    for (const x of t.columns.parent as Uint32Array) this.parent.push(x);
    for (const x of t.columns.frame as Uint32Array) this.frame.push(x);
    for (const x of t.columns.line as Uint32Array) this.line.push(x);
    for (const x of info.frames) {
      this.frames.push(x);
      meet(x.m);
    }
    for (const x of info.objects) this.objects.push(x);
  }

  /** stack gives the functions of a site, the innermost first. */
  stack(site: number): Frame[] {
    const out: Frame[] = [];
    for (let n = this.site[site] ?? 0; n !== 0; n = this.parent[n]) out.push(this.frames[this.frame[n]]);
    return out;
  }

  /** lines gives the lines of a site's functions, in the order of stack; 0 where one is not known. */
  lines(site: number): number[] {
    const out: number[] = [];
    for (let n = this.site[site] ?? 0; n !== 0; n = this.parent[n]) out.push(this.line[n]);
    return out;
  }

  /** leaf is the innermost function's name; "" where no place is known. */
  leaf(site: number): string {
    const node = this.site[site] ?? 0;
    return node === 0 ? "" : this.frames[this.frame[node]].n;
  }

  /** culprit is the innermost function of a site that is the program's own, and no run-time library's; "" where there is none. */
  culprit(site: number): string {
    const own = this.own[site] ?? 0;
    return own === 0 ? "" : this.frames[own - 1].n;
  }

  /** caller is the function of the program's own that the leaf was called from, or where the leaf is that its caller. */
  caller(site: number): string {
    const own = this.culprit(site);
    if (own && own !== this.leaf(site)) return own;
    const node = this.site[site] ?? 0;
    const up = node === 0 ? 0 : this.parent[node];
    return up === 0 ? "" : this.frames[this.frame[up]].n;
  }

  /** called is an object's name, where it has one that is not an address alone. */
  called(id: number): string {
    const n = this.better[id - 1] || this.objects[id]?.n || "";
    return n.startsWith("0x") ? "" : n;
  }

  object(id: number): string {
    const o = this.objects[id];
    return id === 0 || !o ? "" : (this.better[id - 1] || (o.k === "descriptor" ? o.n : `${o.k} ${o.n}`));
  }
}

/** Source is part of a source file: source.go. */
export interface Source {
  path: string;
  changed: boolean; // since the recording began
  missing: string; // why there are no lines; "" where there are
  lines: [number, string][]; // by number
}

export interface Store {
  about: About;
  places: Places;
  /** Whether the data is in this file. */
  embedded: boolean;
  /** Asks for about again; true where the recording has been read further since. */
  refresh(): Promise<boolean>;
  lanes(threads: number[], from: number, to: number, res: number): Promise<Rows>;
  sums(threads: number[] | null, from: number, to: number, byThread: boolean, edges: boolean): Promise<Rows>;
  calls(threads: number[], from: number, to: number, res: number): Promise<Calls>;
  chart(threads: number[] | null, from: number, to: number, cols: number): Promise<Chart>;
  ready(threads: number[] | null, from: number, to: number): Promise<Ready>;
  slowest(threads: number[] | null, from: number, to: number, name: string, turns: boolean, n: number): Promise<Slow>;
  /** source gives lines first to last of the file of a function, as far as they are there. */
  source(frame: number, first: number, last: number): Promise<Source>;
  /** chains of the whole recording; null while they are being looked for. */
  chains(): Promise<Chains | null>;
  /** chainsOf is what the waits of threads were spent on in a stretch of time; null while that is not known. */
  chainsOf(threads: number[] | null, from: number, to: number): Promise<Chains | null>;
}

export function rowsOf(t: Table): Rows {
  return { length: t.columns.thread.length, ...t.columns } as unknown as Rows;
}

export function callsOf(t: Table): Calls {
  return { length: t.columns.thread.length, ...t.columns } as unknown as Calls;
}

export const stateAllocated = 10;
/** stateInUse: in sums, allocations of the selection that were not freed by its end. */
export const stateInUse = 11;
export const allThreads = 0xffffffff;
