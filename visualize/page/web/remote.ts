// Answers from the server that showed the page.

import { decode, type Table } from "./table.js";
import { callsOf, rowsOf, Places, type About, type Calls, type Chains, type Chart, type Ready, type Rows, type Slow, type Source, type Store } from "./store.js";

function highest(c: Uint32Array): number {
  let h = 0;
  for (const x of c) if (x > h) h = x;
  return h;
}

/** Gone says that the server does not answer any more. */
export class Gone extends Error {}

export class Remote implements Store {
  places = new Places();
  embedded = false;
  private naming: Promise<void> = Promise.resolve();

  private constructor(public about: About) {}

  static async open(): Promise<Remote> {
    const r = new Remote((await (await get("about", {})).json()) as About);
    await r.learn();
    return r;
  }

  async refresh(): Promise<boolean> {
    const read = this.about.read;
    const { done, chained } = this.about;
    this.about = (await (await get("about", {})).json()) as About;
    return this.about.read !== read || this.about.done !== done || this.about.chained !== chained;
  }

  async lanes(threads: number[], from: number, to: number, res: number): Promise<Rows> {
    return this.named(await ask("lanes", { ...range(from, to), res: Math.floor(res), threads: threads.join(",") }));
  }

  async sums(threads: number[] | null, from: number, to: number, byThread: boolean, edges: boolean): Promise<Rows> {
    return this.named(
      await ask("sums", { ...range(from, to), thread: +byThread, edges: +edges, threads: threads?.join(",") ?? "" }),
    );
  }

  async calls(threads: number[], from: number, to: number, res: number): Promise<Calls> {
    const c = callsOf(await ask("calls", { ...range(from, to), res: Math.floor(res), threads: threads.join(",") }));
    if (highest(c.frame) >= this.places.frames.length) await this.learn();
    return c;
  }

  async chart(threads: number[] | null, from: number, to: number, cols: number): Promise<Chart> {
    const t = await ask("chart", { ...range(from, to), cols, threads: threads?.join(",") ?? "" });
    return t.columns as unknown as Chart;
  }

  async ready(threads: number[] | null, from: number, to: number): Promise<Ready> {
    return (await ask("ready", { ...range(from, to), threads: threads?.join(",") ?? "" })).columns as unknown as Ready;
  }

  async slowest(threads: number[] | null, from: number, to: number, name: string, turns: boolean, n: number): Promise<Slow> {
    const t = await ask("slowest", { ...range(from, to), name, turns: +turns, n, threads: threads?.join(",") ?? "" });
    return { seen: (t.info as { seen: number }).seen, ...t.columns } as unknown as Slow;
  }

  async chains(): Promise<Chains | null> {
    const c = (await ask("chains", {})).info as Chains | null;
    if (!c) return null;
    await this.learn(); // the places of chains
    this.places.better = c.names;
    return c;
  }

  async chainsOf(threads: number[] | null, from: number, to: number): Promise<Chains | null> {
    const c = (await ask("chains", { ...range(from, to), threads: threads?.join(",") ?? "" })).info as Chains | null;
    if (c) await this.learn();
    return c;
  }

  async source(frame: number, first: number, last: number): Promise<Source> {
    return (await ask("source", { frame, first, last })).info as Source;
  }

  private async named(t: Table): Promise<Rows> {
    const r = rowsOf(t);
    const p = this.places;
    if (highest(r.site) >= p.site.length || highest(r.releaseSite) >= p.site.length || highest(r.object) >= p.objects.length) {
      await this.learn();
    }
    return r;
  }

  /** learn asks for the names that came since, one request at a time. */
  private learn(): Promise<void> {
    this.naming = this.naming.then(async () => {
      const p = this.places;
      p.add(await ask("places", { site: p.site.length, node: p.parent.length, frame: p.frames.length, object: p.objects.length }));
    });
    return this.naming;
  }
}

function range(from: number, to: number): { from: number; to: number } {
  const a = Math.max(0, Math.floor(from));
  return { from: a, to: Math.max(a + 1, Math.ceil(to)) };
}

async function get(what: string, params: Record<string, string | number>): Promise<Response> {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params)) if (v !== "") q.set(k, String(v));
  let r: Response;
  try {
    r = await fetch(`${what}?${q}`);
  } catch {
    throw new Gone("hbtrace view does not answer any more: start it again and reload");
  }
  if (!r.ok) throw new Error(await r.text());
  return r;
}

async function ask(what: string, params: Record<string, string | number>): Promise<Table> {
  return decode(await (await get(what, params)).arrayBuffer());
}
