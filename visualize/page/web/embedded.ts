// Answers from the data inside an exported file: the same questions, asked of a few hundred thousand pieces in
// memory. Tests hold the two to the same answers.

import { ready } from "./colours.js";
import { chainsOf } from "./spent.js";
import { decode, type Table } from "./table.js";
import {
  allThreads, callsOf, rowsOf, stateAllocated, stateInUse, Places, type About, type Calls, type Chains, type Chart, type Ready, type Rows, type Slow, type Source, type Store,
} from "./store.js";

/** ranges finds where each thread's rows begin; rows come in order of threads. */
function ranges(thread: Uint32Array, n: number): Uint32Array {
  const first = new Uint32Array(n + 1);
  for (const t of thread) first[t + 1]++;
  for (let i = 0; i < n; i++) first[i + 1] += first[i];
  return first;
}

/**
 * level bounds the CPU time of consecutive buckets, each of which has room for most: what is too much was used before, or, where there is no
 * room, later. It is Level of analysis/timeline.
 */
function level(sums: Float64Array, most: number): void {
  let over = 0;
  for (let i = sums.length - 1; i >= 0; i--) {
    sums[i] += over;
    over = Math.max(0, sums[i] - most);
    sums[i] -= over;
  }
  for (let i = 0; i < sums.length && over > 0; i++) {
    const room = Math.min(over, Math.max(0, most - sums[i]));
    sums[i] += room;
    over -= room;
  }
  if (sums.length > 0) sums[0] += over;
}

/** Builder collects rows. */
class Builder {
  private list: Record<keyof Omit<Rows, "length">, number[]> = {
    thread: [], start: [], value: [], state: [], count: [], site: [], object: [], owner: [], releaser: [], release: [],
    releaseSite: [], flags: [],
  };

  copy(r: Rows, i: number): number {
    for (const k of Object.keys(this.list) as (keyof typeof this.list)[]) this.list[k].push(r[k][i]);
    return this.list.thread.length - 1;
  }

  at(k: keyof typeof this.list, i: number): number {
    return this.list[k][i];
  }

  set(k: keyof typeof this.list, i: number, v: number): void {
    this.list[k][i] = v;
  }

  rows(): Rows {
    const l = this.list;
    return {
      length: l.thread.length, thread: Uint32Array.from(l.thread), start: Float64Array.from(l.start), value: Float64Array.from(l.value),
      state: Uint8Array.from(l.state), count: Uint32Array.from(l.count), site: Uint32Array.from(l.site),
      object: Uint32Array.from(l.object), owner: Uint32Array.from(l.owner), releaser: Uint32Array.from(l.releaser),
      release: Float64Array.from(l.release), releaseSite: Uint32Array.from(l.releaseSite), flags: Uint16Array.from(l.flags),
    };
  }
}

export class Embedded implements Store {
  embedded = true;
  places = new Places();
  about: About;
  private pieces: Rows;
  private allocs: Rows;
  private spans: Calls;
  private found: Chains;
  private spent: Table;
  private looks: Record<"thread" | "start" | "end" | "ready", Float64Array>;
  private code: Source[];
  private firstPiece: Uint32Array;
  private firstAlloc: Uint32Array;
  private firstSpan: Uint32Array;

  private constructor(tables: Table[]) {
    this.about = tables[0].info as About;
    this.pieces = rowsOf(tables[1]);
    this.allocs = rowsOf(tables[2]);
    this.spans = callsOf(tables[3]);
    this.places.add(tables[4]);
    this.found = tables[5].info as Chains;
    this.spent = tables[6];
    this.looks = tables[7].columns as unknown as Embedded["looks"];
    this.code = tables[8].info as Source[];
    this.places.better = this.found.names;
    const n = this.about.threads.length;
    this.firstPiece = ranges(this.pieces.thread, n);
    this.firstAlloc = ranges(this.allocs.thread, n);
    this.firstSpan = ranges(this.spans.thread, n);
  }

  static async open(text: string): Promise<Embedded> {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
    const plain = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
    const tables: Table[] = [];
    for (let at = 0; at < plain.byteLength; ) {
      const size = new DataView(plain).getUint32(at, true);
      tables.push(decode(plain.slice(at + 8, at + 8 + size)));
      at += 8 + size;
    }
    return new Embedded(tables);
  }

  async refresh(): Promise<boolean> {
    return false;
  }

  private each(threads: number[] | null, f: (t: number) => void): void {
    if (threads) threads.forEach(f);
    else for (let t = 0; t < this.about.threads.length; t++) f(t);
  }

  async lanes(threads: number[], from: number, to: number): Promise<Rows> {
    const out = new Builder();
    const p = this.pieces;
    this.each(threads, (t) => {
      for (let i = this.firstPiece[t]; i < this.firstPiece[t + 1]; i++) {
        if (p.start[i] < to && p.start[i] + p.value[i] > from) out.copy(p, i);
      }
    });
    return out.rows();
  }

  async sums(threads: number[] | null, from: number, to: number, byThread: boolean, edges: boolean): Promise<Rows> {
    const out = new Builder();
    const seen = new Map<string, number>();
    const add = (r: Rows, i: number, value: number, count: number, start: number, state = r.state[i]): void => {
      const thread = byThread || edges ? r.thread[i] : allThreads;
      const wait = edges && r.object[i] + r.owner[i] + r.releaser[i] > 0;
      const key = [
        thread, r.site[i], state,
        ...(wait ? [r.object[i], r.owner[i], r.releaser[i], r.releaseSite[i], r.flags[i] & flagCertain] : []),
      ].join();
      let row = seen.get(key);
      if (row === undefined) {
        row = out.copy(r, i);
        seen.set(key, row);
        for (const k of ["value", "count"] as const) out.set(k, row, 0);
        out.set("thread", row, thread);
        out.set("state", row, state);
        out.set("start", row, start);
        out.set("release", row, -1);
        out.set("flags", row, wait ? r.flags[i] & flagCertain : 0);
        if (!wait) for (const k of ["object", "owner", "releaser", "releaseSite"] as const) out.set(k, row, 0);
      }
      out.set("value", row, out.at("value", row) + value);
      out.set("count", row, out.at("count", row) + count);
      out.set("start", row, Math.min(out.at("start", row), start));
      if (edges && r.state[i] > 2 && r.state[i] !== ready) out.set("release", row, Math.max(out.at("release", row), r.value[i]));
    };
    const p = this.pieces;
    const a = this.allocs;
    this.each(threads, (t) => {
      for (let i = this.firstPiece[t]; i < this.firstPiece[t + 1]; i++) {
        const start = Math.max(from, p.start[i]);
        const end = Math.min(to, p.start[i] + p.value[i]);
        if (end > start) add(p, i, end - start, p.count[i], start);
      }
      if (edges) return;
      const held = new Map<number, { i: number; bytes: number; count: number; start: number }>(); // by site
      for (let i = this.firstAlloc[t]; i < this.firstAlloc[t + 1]; i++) {
        if (a.start[i] < from || a.start[i] >= to) continue;
        const freed = a.state[i] === stateFreed;
        if (!freed) add(a, i, a.value[i], a.count[i], a.start[i]);
        if (a.state[i] < stateAllocated || (freed && a.release[i] > to)) continue;
        const h = held.get(a.site[i]) ?? { i, bytes: 0, count: 0, start: a.start[i] };
        held.set(a.site[i], h);
        h.bytes += freed ? -a.value[i] : a.value[i];
        h.count += freed ? -a.count[i] : a.count[i];
      }
      for (const h of held.values()) if (h.bytes > 0) add(a, h.i, h.bytes, Math.max(1, h.count), h.start, stateInUse);
    });
    return out.rows();
  }

  async calls(threads: number[], from: number, to: number): Promise<Calls> {
    const s = this.spans;
    const keep: number[] = [];
    this.each(threads, (t) => {
      for (let i = this.firstSpan[t]; i < this.firstSpan[t + 1]; i++) {
        if (s.start[i] < to && s.start[i] + s.dur[i] > from) keep.push(i);
      }
    });
    return {
      length: keep.length, thread: Uint32Array.from(keep, (i) => s.thread[i]), depth: Uint16Array.from(keep, (i) => s.depth[i]),
      start: Float64Array.from(keep, (i) => s.start[i]), dur: Float64Array.from(keep, (i) => s.dur[i]),
      frame: Uint32Array.from(keep, (i) => s.frame[i]), count: Uint32Array.from(keep, (i) => s.count[i]),
    };
  }

  async chart(threads: number[] | null, from: number, to: number, cols: number): Promise<Chart> {
    const make = (): Float64Array => new Float64Array(cols);
    const c: Chart = { cpu: make(), off: make(), lock: make(), blocked: make(), alloc: make() };
    const per = (to - from) / cols;
    const p = this.pieces;
    this.each(threads, (t) => {
      for (let i = this.firstPiece[t]; i < this.firstPiece[t + 1]; i++) {
        const start = Math.max(from, p.start[i]);
        const end = Math.min(to, p.start[i] + p.value[i]);
        const s = p.state[i];
        const curve = s === 1 ? c.cpu : s === 2 || s === ready ? c.off : s === 3 ? c.lock : c.blocked;
        for (let col = Math.floor((start - from) / per); col < cols && from + col * per < end; col++) {
          curve[col] += Math.max(0, Math.min(end, from + (col + 1) * per) - Math.max(start, from + col * per));
        }
      }
      const a = this.allocs;
      for (let i = this.firstAlloc[t]; i < this.firstAlloc[t + 1]; i++) {
        const col = Math.floor((a.start[i] - from) / per);
        if (a.state[i] === stateAllocated && col >= 0 && col < cols) c.alloc[col] += a.value[i];
      }
    });
    if (this.about.cpus > 0) level(c.cpu, per * this.about.cpus);
    return c;
  }

  async ready(threads: number[] | null, start: number, end: number): Promise<Ready> {
    const list = this.looks;
    const by = new Map<number, { from: number; to: number; least: number; most: number; last: number }>();
    for (let i = 0; i < list.thread.length; i++) {
      const t = this.about.threads[list.thread[i]];
      const x = by.get(list.thread[i]) ?? { from: Math.max(Math.floor(start), t.start), to: Math.min(Math.ceil(end), t.end), least: 0, most: 0, last: 0 };
      const { from, to } = x;
      by.set(list.thread[i], x);
      x.last = Math.max(x.last, list.end[i]);
      const within = Math.min(list.end[i], to) - Math.max(list.start[i], from);
      if (within <= 0) continue;
      x.least += Math.max(0, list.ready[i] - (list.end[i] - list.start[i] - within));
      x.most += Math.min(list.ready[i], within);
    }
    const out: { thread: number; least: number; most: number }[] = [];
    this.each(threads, (thread) => {
      const x = by.get(thread);
      if (x && x.from < Math.min(x.to, x.last)) out.push({ thread, least: x.least, most: x.most + Math.max(0, x.to - Math.max(x.from, x.last)) });
    });
    return { thread: Uint32Array.from(out, (x) => x.thread), least: Float64Array.from(out, (x) => x.least), most: Float64Array.from(out, (x) => x.most) };
  }

  async slowest(threads: number[] | null, from: number, to: number, name: string, turns: boolean, n: number): Promise<Slow> {
    const found: { thread: number; start: number; dur: number }[] = [];
    this.each(threads, (t) => {
      if (turns) this.turns(t, from, to, name, found);
      else this.named(t, from, to, name, found);
    });
    const seen = found.length;
    found.sort((a, b) => b.dur - a.dur || a.start - b.start || a.thread - b.thread);
    const best = found.filter((x) => x.dur > 0).slice(0, n);
    return {
      seen, thread: Uint32Array.from(best, (x) => x.thread), start: Float64Array.from(best, (x) => x.start),
      dur: Float64Array.from(best, (x) => x.dur),
    };
  }

  async source(frame: number, first: number, last: number): Promise<Source> {
    const path = this.places.frames[frame]?.f ?? "";
    const found = this.code.find((x) => x.path === path);
    if (!found) return { path, changed: false, missing: "this page has no source lines of it", lines: [] };
    return { ...found, lines: found.lines.filter(([n]) => n >= first && n <= last) };
  }

  async chains(): Promise<Chains> {
    return this.found;
  }

  async chainsOf(threads: number[] | null, from: number, to: number): Promise<Chains> {
    if (threads === null && from <= 0 && to >= this.about.length) return this.found;
    return chainsOf(this.spent, this.found, threads, Math.floor(from), Math.ceil(to));
  }

  private turns(t: number, from: number, to: number, name: string, found: { thread: number; start: number; dur: number }[]): void {
    const p = this.pieces;
    let back = -1;
    for (let i = this.firstPiece[t]; i < this.firstPiece[t + 1]; i++) {
      const end = p.start[i] + p.value[i];
      if (end <= from || p.start[i] >= to || p.state[i] < 3 || p.state[i] === ready || this.places.leaf(p.site[i]) !== name) continue;
      if (back >= from) found.push({ thread: t, start: back, dur: p.start[i] - back });
      back = end;
    }
  }

  private named(t: number, from: number, to: number, name: string, found: { thread: number; start: number; dur: number }[]): void {
    const s = this.spans;
    const mine: { depth: number; start: number; end: number }[] = [];
    for (let i = this.firstSpan[t]; i < this.firstSpan[t + 1]; i++) {
      if (s.count[i] > 1 || this.places.frames[s.frame[i]].n !== name) continue;
      const x = { depth: s.depth[i], start: s.start[i], end: s.start[i] + s.dur[i] };
      if (mine.some((o) => o.depth < x.depth && o.start <= x.start && o.end >= x.end)) continue; // recursion
      mine.push(x);
      if (x.start >= from && x.end <= to) found.push({ thread: t, start: x.start, dur: s.dur[i] });
    }
  }
}

const flagCertain = 1 << 9;
const stateFreed = stateInUse; // in this.allocs: how much of earlier allocations was freed at release
