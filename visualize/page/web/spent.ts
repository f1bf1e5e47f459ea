// Chains of a selection in an exported page: what the server does in spent.go, with the parts of waits that are in the file.

import type { Table } from "./table.js";
import type { Activity, Chain, Chains, Holding } from "./store.js";

/** As in chains.go. */
const most = { chains: 400, holding: 2000, doing: 4 };
const kept = 2; // chains that are left out have the numbers below: waits for locks 1, others 0

interface Info {
  chains: Chain[];
  edges: Holding[];
  first: Activity[]; // what the first thread that a chain waited for did
  resolution: number;
}

interface Parts {
  start: Float64Array;
  dur: Float64Array;
  ns: Float64Array;
  longest: Float64Array;
  edge: Uint32Array;
  chain: Uint32Array;
  wait: Uint32Array;
  waits: Uint32Array;
}

/** Sum is a sum of parts. */
class Sum {
  ns = 0;
  longest = 0;
  count = 0;
  edge = 0; // of the longest part
  private current = 0;
  private wait = -1;
  private most = 0;

  add(p: Parts, i: number, ns: number): void {
    this.ns += ns;
    if (p.waits[i] > 0) {
      this.count += Math.max(1, Math.round((p.waits[i] * ns) / p.ns[i]));
      this.longest = Math.max(this.longest, Math.min(p.longest[i], ns));
      this.wait = p.wait[i];
      this.current = 0;
    } else if (this.wait === p.wait[i]) {
      this.current += ns;
      this.longest = Math.max(this.longest, this.current);
    } else {
      this.count++;
      this.wait = p.wait[i];
      this.current = ns;
      this.longest = Math.max(this.longest, ns);
    }
    if (ns > this.most) {
      this.most = ns;
      this.edge = p.edge[i];
    }
  }
}

/** heaviest are the numbers of sums, the heaviest first. */
function heaviest(sums: Map<number, Sum>): [number, Sum][] {
  return [...sums].sort((a, b) => b[1].ns - a[1].ns || a[0] - b[0]);
}

/** chainsOf cuts the parts in table t to a selection; what it does not cut comes from found. */
export function chainsOf(t: Table, found: Chains, threads: number[] | null, from: number, to: number): Chains {
  const p = t.columns as unknown as Parts;
  const { chains, edges, first, resolution } = t.info as Info;
  const want = edges.map((e) => threads === null || threads.includes(e.thread - 1));
  const sums = new Map<number, Sum>();
  const by = new Map<number, Sum>();
  const did = new Map<number, Map<number, number>>(); // ns by edge and chain
  const sumOf = (m: Map<number, Sum>, k: number): Sum => {
    let x = m.get(k);
    if (!x) m.set(k, (x = new Sum()));
    return x;
  };
  for (let i = 0; i < p.start.length; i++) {
    if (!want[p.edge[i]]) continue;
    const a = Math.max(from, p.start[i]);
    const b = Math.min(to, p.start[i] + p.dur[i]);
    if (b <= a) continue;
    const ns = b - a === p.dur[i] ? p.ns[i] : p.waits[i] === 0 ? b - a : Math.trunc((p.ns[i] * (b - a)) / p.dur[i]);
    if (ns <= 0) continue;
    sumOf(by, p.edge[i]).add(p, i, ns);
    sumOf(sums, p.chain[i]).add(p, i, ns);
    if (p.chain[i] < kept) continue;
    const d = did.get(p.edge[i]) ?? new Map<number, number>();
    d.set(p.chain[i], (d.get(p.chain[i]) ?? 0) + ns);
    did.set(p.edge[i], d);
  }
  const rest = [1, 0].map((k) => ({ chains: 0, ns: sums.get(k)?.ns ?? 0 }));
  const list: Chain[] = [];
  for (const [k, x] of heaviest(sums)) {
    if (k < kept) continue;
    const c = chains[k - kept];
    if (list.length === most.chains) {
      const r = rest[c.lock ? 0 : 1];
      r.chains++;
      r.ns += x.ns;
      continue;
    }
    const e = edges[x.edge];
    // chains are told apart by threads' names: this one's first is to be one that waited here
    const links = c.links.map((l, i) => (i > 0 ? l : { ...l, thread: e.thread, site: e.site || l.site }));
    list.push({ ...c, ns: x.ns, longest: x.longest, count: x.count, links, end: { ...c.end, ns: x.ns } });
  }
  const holding = heaviest(by).filter(([k]) => edges[k].site > 0).map(([k, x]): Holding => ({
    ...edges[k], ns: x.ns, count: x.count, doing: [...(did.get(k) ?? [])].map(([chain, ns]) => ({ ...first[chain - kept], ns })),
  }));
  return { ...found, chains: list, rest, holding: joined(holding), names: [], resolution };
}

/** joined adds up holdings that the page does not tell apart; the heaviest come first. */
function joined(list: Holding[]): Holding[] {
  const at = new Map<string, { x: Holding; taken: number }>();
  for (const h of list) {
    const key = [h.thread, h.site, h.object, h.owner, h.releaser].join();
    const o = at.get(key);
    if (!o) {
      at.set(key, { x: h, taken: h.ns });
      continue;
    }
    if (h.taken > 0 && (o.x.taken === 0 || h.ns > o.taken)) [o.x.taken, o.taken] = [h.taken, h.ns];
    o.x.ns += h.ns;
    o.x.count += h.count;
    o.x.doing.push(...h.doing);
  }
  const all = [...at.values()].map(({ x }) => ({ ...x, doing: doings(x.doing) }));
  return all.sort((a, b) => b.ns - a.ns || a.thread - b.thread || a.site - b.site || a.object - b.object || a.owner - b.owner || a.releaser - b.releaser)
    .slice(0, most.holding);
}

/** doings adds up equal ones; the heaviest few are told. */
function doings(list: Activity[]): Activity[] {
  const at = new Map<string, Activity>();
  for (const d of [...list].sort((a, b) => b.ns! - a.ns!)) {
    const key = [d.act, d.act === "waiting" ? "" : (d.in ?? ""), d.object ?? 0].join("\n");
    const x = at.get(key);
    if (x) x.ns! += d.ns!;
    else at.set(key, { ...d });
  }
  return [...at.values()].sort((a, b) => b.ns! - a.ns!).slice(0, most.doing);
}
