// Three sentences about the selection: where the CPU time went, which lock cost most and who held it, which calls were
// slow. What a tired engineer reads first.

import type { App } from "./app.js";
import { locked, looks, running, signaled } from "./colours.js";
import { fill, h, table } from "./dom.js";
import { between, duration, percent, short } from "./format.js";
import type { Places, Ready, Rows } from "./store.js";

/** heaviest sums rows by a key and gives the heaviest keys first. */
export function heaviest<K>(rows: Rows, keep: (i: number) => boolean, key: (i: number) => K): [K, number][] {
  const sums = new Map<K, number>();
  for (let i = 0; i < rows.length; i++) if (keep(i)) sums.set(key(i), (sums.get(key(i)) ?? 0) + rows.value[i]);
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/** where names the function of the program that waits at a site. */
export function where(places: Places, site: number): string {
  return short(places.culprit(site) || places.caller(site) || places.leaf(site));
}

const plural: Record<string, string> = { condvar: "conditions", semaphore: "semaphores", thread: "threads to end", futex: "futexes", barrier: "barriers" };

const mostSpoken = 50; // threads

export class Summary {
  private cards = h("div", { class: "summary", role: "status", "aria-label": "In short" });
  private table = h("div", { class: "hidden" });
  readonly element = h("div", {}, this.cards, this.table);
  private asked = "";
  private timer = 0;

  constructor(private app: App) {}

  update(what: Set<string>): void {
    const key = this.app.shared.key() + this.app.store.about.read;
    if (key === this.asked && !what.has("data")) return;
    const first = this.asked === "";
    this.asked = key;
    clearTimeout(this.timer);
    // Sums over all that is visible are no question for each frame of a movement.
    if (first || !(what.has("from") || what.has("to"))) this.ask();
    else this.timer = window.setTimeout(() => this.ask(), 150);
  }

  private ask(): void {
    const [from, to] = this.app.shared.range();
    const { threads } = this.app.shared.state;
    this.app.ask("summary", () => Promise.all([this.app.store.sums(threads, from, to, true, true), this.app.store.ready(threads, from, to)]),
      ([rows, ready]) => this.show(rows, ready, to - from));
  }

  private show(rows: Rows, ready: Ready, time: number): void {
    const cards = [this.cpu(rows, ready), this.locks(rows), this.calls(rows)].filter((c) => c !== null);
    if (cards.length === 0) cards.push(h("div", { class: "card" }, h("b", {}, "Nothing was recorded of this selection"), h("p", {}, "Esc selects everything again.")));
    fill(this.cards, ...cards);
    fill(this.table, this.spoken(rows, ready, time));
  }

  /** spoken is the lanes as a table, for screen readers: how long each thread was in each state. */
  private spoken(rows: Rows, ready: Ready, time: number): HTMLElement {
    const used = [...looks.keys()].filter((s) => rows.state.includes(s));
    const by = new Map<number, number[]>();
    for (let i = 0; i < rows.length; i++) {
      if (rows.state[i] >= looks.length) continue;
      const sums = by.get(rows.thread[i]) ?? looks.map(() => 0);
      sums[rows.state[i]] += rows.value[i];
      by.set(rows.thread[i], sums);
    }
    const busy = (sums: number[]): number => sums[running] + sums[locked];
    const list = [...by].sort((a, b) => busy(b[1]) - busy(a[1])).slice(0, mostSpoken);
    const counted = new Map([...ready.thread].map((t, i) => [t, between(ready.least[i], ready.most[i], time)]));
    return table(["thread", ...used.map((s) => looks[s].name), ...(counted.size > 0 ? ["runnable, by the kernel’s count"] : [])],
      list.map(([t, sums]) => [this.app.threadName(t), ...used.map((s) => (sums[s] > 0 ? duration(sums[s]) : "")), ...(counted.size > 0 ? [counted.get(t) ?? ""] : [])]),
      [], "What each thread did in the selection");
  }

  private card(state: number, what: string, more: (Node | string)[], go: () => void): HTMLElement {
    return h(
      "button",
      { class: "card", type: "button", on: { click: go } },
      h("i", { css: { background: looks[state].css } }),
      h("b", {}, what),
      h("p", {}, ...more),
    );
  }

  private cpu(rows: Rows, ready: Ready): HTMLElement | null {
    const { places } = this.app.store;
    const is = (i: number): boolean => rows.state[i] === running;
    const total = heaviest(rows, is, () => 0)[0]?.[1] ?? 0;
    if (total === 0) return null;
    const [from, to] = this.app.shared.range();
    const by = heaviest(rows, is, (i) => places.leaf(rows.site[i]) || "[no stack]").slice(0, 3);
    const list = by.map(([name, ns]) => `${short(name)} ${percent(ns, total)}`).join(", ");
    const waited = ready.least.reduce((n, x) => n + x, 0);
    return this.card(running, `${duration(total)} of CPU, ${(total / (to - from)).toFixed(2)} CPUs busy`, [list, waited > total / 50 ? `; runnable without a CPU, at least ${duration(waited)}` : ""], () => {
      this.app.shared.set({ view: "flame", options: { ...this.app.shared.state.options, value: "cpu" } });
    });
  }

  private locks(rows: Rows): HTMLElement | null {
    const { places } = this.app.store;
    if (!rows.state.includes(locked)) return this.wakeups(rows);
    const state = locked;
    const is = (i: number): boolean => rows.state[i] === state;
    const all = heaviest(rows, is, (i) => rows.object[i]);
    if (all.length === 0) return null;
    const [object, ns] = all[0];
    const mine = (i: number): boolean => is(i) && rows.object[i] === object;
    const holder = heaviest(rows, mine, (i) => rows.owner[i] || rows.releaser[i]).find(([t]) => t > 0);
    const release = heaviest(rows, (i) => mine(i) && rows.releaseSite[i] > 0, (i) => where(places, rows.releaseSite[i]))[0];
    const waited = heaviest(rows, mine, (i) => where(places, rows.site[i]))[0];
    const waiters = new Set<number>();
    for (let i = 0; i < rows.length; i++) if (mine(i)) waiters.add(rows.thread[i]);
    const more = [
      waited ? `${waiters.size} thread${waiters.size === 1 ? "" : "s"} in ${waited[0]}` : "",
      holder ? `, ${percent(holder[1], ns)} of it held by ${this.app.threadName(holder[0] - 1)}` : "",
      release ? ` in ${release[0]}` : "",
    ];
    return this.card(state, `${duration(ns)} waiting for ${places.object(object) || "a lock"}`, [more.join("")], () => {
      this.app.shared.set({ view: "blocks", options: { ...this.app.shared.state.options, edge: `o${object}` } });
    });
  }

  /** wakeups is about waits for other threads where there are no locks. Idle workers are woken by nobody and left out. */
  private wakeups(rows: Rows): HTMLElement | null {
    const { places } = this.app.store;
    const is = (i: number): boolean => rows.state[i] === signaled && rows.releaser[i] > 0;
    const kind = (i: number): string => places.objects[rows.object[i]]?.k ?? "";
    const all = heaviest(rows, is, (i) => `${kind(i)}\n${where(places, rows.site[i])}`);
    if (all.length === 0) return null;
    const [what, ns] = all[0];
    const [object, place] = what.split("\n");
    const mine = (i: number): boolean => is(i) && `${kind(i)}\n${where(places, rows.site[i])}` === what;
    const [by, byNs] = heaviest(rows, mine, (i) => rows.releaser[i] - 1)[0];
    const threads = heaviest(rows, mine, (i) => rows.thread[i]).length;
    return this.card(signaled, `${duration(ns)} waiting for ${plural[object] ?? "other threads"}`,
      [`${threads} thread${threads === 1 ? "" : "s"} in ${place}, ${percent(byNs, ns)} of it released by ${this.app.threadName(by)}`], () => {
        this.app.shared.set({ view: "blocks", options: { ...this.app.shared.state.options, kinds: "all" } });
      });
  }

  private calls(rows: Rows): HTMLElement | null {
    const { places } = this.app.store;
    const is = (i: number): boolean => rows.state[i] === 5;
    let all = heaviest(rows, is, (i) => rows.site[i]);
    let state = 5;
    if (all.length === 0) {
      state = 8;
      all = heaviest(rows, (i) => rows.state[i] > 5 && rows.state[i] < 9, (i) => rows.site[i]);
    }
    if (all.length === 0) return null;
    const total = all.reduce((n, x) => n + x[1], 0);
    const list = all.slice(0, 3).map(([site, ns]) => `${short(places.leaf(site))} in ${where(places, site)} ${duration(ns)}`);
    return this.card(state, `${duration(total)} ${state === 5 ? "reading and writing" : "in other calls"}`, [list.join(", ")], () => {
      this.app.shared.set({ view: "flame", options: { ...this.app.shared.state.options, value: "blocked" } });
    });
  }
}
