// Who blocks whom: threads that had a lock, the locks, and the threads that waited, joined by bands as wide as the
// time waited. A click on any of them shows the stacks behind it.

import type { App, View } from "./app.js";
import { locked, looks, signaled } from "./colours.js";
import { fill, h, s, table } from "./dom.js";
import { count, duration, percent, short, whole } from "./format.js";
import { chainList, deadlockList, doingList, holdingOf } from "./chains.js";
import { stackList } from "./piece.js";
import type { Chains, Rows } from "./store.js";
import { heaviest, where } from "./summary.js";

const most = { blockers: 12, objects: 10, waiters: 16 };
const others = -1;
const worthOfLocks = 0.05; // of the selection's time, as lockFirst of package report
const letter = 8.2; // px, of a name's widest usual ones
const sideRoom = 84; // px, for the duration next to a name

interface Band {
  from: number;
  to: number;
  ns: number;
  rows: number[];
}

interface Spot {
  id: number;
  ns: number;
  y: number;
  h: number;
  in: number; // used so far, px
  out: number;
}

export class Blocks implements View {
  readonly element = h("section", { class: "blocks", "aria-label": "Who blocks whom" });
  private tools = h("div", { class: "tools" });
  private body = h("div", { class: "blocks-body", tabindex: "0", role: "region", "aria-label": "Threads, what they waited for, and who held it" });
  private rows: Rows | null = null;
  private found: Chains | null = null;
  private asked = "";
  private timer = 0;

  constructor(private app: App) {
    this.element.append(this.tools, this.body);
    new ResizeObserver(() => this.show()).observe(this.element);
  }

  update(what: Set<string>): void {
    const picked = /(?:^|,)w(\d+)/.exec(this.app.shared.option("edge", ""))?.[1];
    const key = [this.app.shared.key(), this.app.store.about.read, picked].join("|");
    if (key === this.asked && !what.has("data")) {
      this.show();
      return;
    }
    const first = this.asked === "";
    this.asked = key;
    clearTimeout(this.timer);
    // Sums over all that is selected are no question for each frame of a movement.
    if (first || what.has("data") || what.has("shown") || !(what.has("from") || what.has("to") || what.has("picked"))) this.ask(picked);
    else this.timer = window.setTimeout(() => this.ask(picked), 150);
  }

  /** ask asks for waits of the selection, and what they came down to: of the waiter alone that was picked in the graph. */
  private ask(picked: string | undefined): void {
    const { store, shared } = this.app;
    const [from, to] = shared.range();
    const { threads } = shared.state;
    // A thread that blocked a selected thread matters, whether it is selected or not: waits are the waiters'.
    this.app.ask("blocks", () => Promise.all([
      store.sums(threads, from, to, true, true),
      this.app.chains && store.chainsOf(picked === undefined ? threads : [Number(picked)], from, to),
    ]), ([rows, found]) => {
      [this.rows, this.found] = [rows, found];
      this.show();
    });
  }

  private kinds(): Set<number> {
    const o = this.app.shared.option("kinds", "");
    if (o === "all") return new Set([locked, signaled]);
    if (o === "locks") return new Set([locked]);
    return new Set([this.lockFirst() ? locked : signaled, ...(this.lockFirst() ? [] : [locked])]);
  }

  /** lockFirst says whether locks alone are shown: where nothing is chosen, locks that cost much or most. */
  private lockFirst(): boolean {
    if (!this.rows) return true;
    const sum = (state: number): number => heaviest(this.rows!, (i) => this.rows!.state[i] === state, () => 0)[0]?.[1] ?? 0;
    const [from, to] = this.app.shared.range();
    const locks = sum(locked);
    return locks > 0 && (locks >= (to - from) * worthOfLocks || locks >= sum(signaled));
  }

  private toolbar(all: number, n: number): void {
    const kinds = this.kinds();
    const button = (id: string, text: string, on: boolean): HTMLElement =>
      h("button", { type: "button", "aria-pressed": String(on), on: { click: () => this.app.shared.choose("kinds", id) } }, text);
    fill(
      this.tools,
      button("locks", "Locks", !kinds.has(signaled)),
      button("all", "Locks, conditions, semaphores, joins", kinds.has(signaled)),
      h("span", { class: "soft" }, n > 0 ? `${duration(all)} waited by ${n} thread${n === 1 ? "" : "s"}` : ""),
      this.app.shared.option("edge", "") !== "" && h("button", { type: "button", on: { click: () => this.app.shared.choose("edge", null) } }, "Show all"),
    );
  }

  private show(): void {
    const rows = this.rows;
    if (!rows || !this.element.isConnected) return;
    const kinds = this.kinds();
    const use: number[] = [];
    for (let i = 0; i < rows.length; i++) if (kinds.has(rows.state[i])) use.push(i);
    const total = use.reduce((n, i) => n + rows.value[i], 0);
    this.toolbar(total, new Set(use.map((i) => rows.thread[i])).size);
    if (use.length === 0) {
      fill(this.body, h("div", { class: "empty" }, h("h2", {}, "Nobody waited for a lock here"),
        h("p", { class: "soft" }, "No wait longer than ", duration(this.app.store.about.lockNs), " was recorded in this selection. Conditions and joins may still have been waited for.")));
      return;
    }
    const edge = this.app.shared.option("edge", "");
    const chosen = use.filter((i) => this.matches(rows, i, edge));
    const { found } = this;
    fill(this.body, found && deadlockList(this.app, found), this.graph(rows, use, edge),
      this.behind(rows, chosen.length > 0 ? chosen : use, edge), found && chainList(this.app, found, !kinds.has(signaled), edge), this.list(rows, use));
  }

  private blocker(rows: Rows, i: number): number {
    return (rows.state[i] === locked ? rows.owner[i] || rows.releaser[i] : rows.releaser[i] || rows.owner[i]) - 1;
  }

  /** matches says whether a row is in what was clicked: o<object>, b<blocker>, w<waiter>, or two with a comma. */
  private matches(rows: Rows, i: number, edge: string): boolean {
    return edge.split(",").every((p) => {
      const id = Number(p.slice(1));
      if (p[0] === "o") return rows.object[i] === id;
      if (p[0] === "b") return this.blocker(rows, i) === id;
      if (p[0] === "w") return rows.thread[i] === id;
      return true;
    });
  }

  private graph(rows: Rows, use: number[], edge: string): Element {
    const is = new Set(use);
    const top = (key: (i: number) => number, n: number): { ids: Set<number>; list: [number, number][] } => {
      const list = heaviest(rows, (i) => is.has(i), key);
      const ids = new Set(list.slice(0, n).map(([k]) => k));
      const rest = list.slice(n).reduce((sum, [, ns]) => sum + ns, 0);
      return { ids, list: [...list.slice(0, n), ...(rest > 0 ? [[others, rest] as [number, number]] : [])] };
    };
    const unknown = -2;
    const b = top((i) => { const x = this.blocker(rows, i); return x < 0 ? unknown : x; }, most.blockers);
    const o = top((i) => rows.object[i], most.objects);
    const w = top((i) => rows.thread[i], most.waiters);
    const width = Math.max(620, this.body.clientWidth - 24);
    const rowsMost = Math.max(b.list.length, o.list.length, w.list.length);
    const wanted = Math.max(150, Math.min(560, rowsMost * 40));
    const total = use.reduce((n, i) => n + rows.value[i], 0);
    const gap = 16;
    const least = 5;
    const scale = Math.max(60, wanted - gap * (rowsMost - 1)) / Math.max(1, total);
    const used = (list: [number, number][]): number => list.reduce((n, [, ns]) => n + Math.max(least, ns * scale), 0) + gap * (list.length - 1);
    const tallest = Math.max(used(b.list), used(o.list), used(w.list));
    const height = tallest + 60;
    const place = (list: [number, number][]): Map<number, Spot> => {
      let y = 40 + (tallest - used(list)) / 2;
      return new Map(list.map(([id, ns]) => {
        const spot = { id, ns, y, h: Math.max(least, ns * scale), in: 0, out: 0 };
        y += spot.h + gap;
        return [id, spot];
      }));
    };
    const spots = [place(b.list), place(o.list), place(w.list)];
    const names: ((id: number) => string)[] = [
      (id) => (id === unknown ? "not known" : this.app.threadName(id)),
      (id) => this.app.store.places.object(id) || "no object",
      (id) => this.app.threadName(id),
    ];
    // Names at the sides have the room that they need, up to a third; longer ones are cut, and are whole in the title.
    const margin = [b.list, w.list].map((list, k) =>
      Math.min(width / 3, Math.max(width * 0.2, sideRoom + letter * Math.max(...list.map(([id]) => (id === others ? 6 : names[2 * k](id).length))))));
    const column = [margin[0], (margin[0] + width - margin[1]) / 2, width - margin[1]];
    const letters = [(margin[0] - sideRoom) / letter, 34, (margin[1] - sideRoom) / letter].map((x) => Math.max(6, Math.floor(x)));
    const bands = (left: (i: number) => number, right: (i: number) => number): Band[] => {
      const m = new Map<string, Band>();
      for (const i of use) {
        const [from, to] = [left(i), right(i)];
        const k = `${from},${to}`;
        const x = m.get(k) ?? { from, to, ns: 0, rows: [] };
        x.ns += rows.value[i];
        x.rows.push(i);
        m.set(k, x);
      }
      return [...m.values()].sort((p, q) => q.ns - p.ns);
    };
    const bo = (i: number): number => { const x = this.blocker(rows, i); const k = x < 0 ? unknown : x; return b.ids.has(k) ? k : others; };
    const oo = (i: number): number => (o.ids.has(rows.object[i]) ? rows.object[i] : others);
    const wo = (i: number): number => (w.ids.has(rows.thread[i]) ? rows.thread[i] : others);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Who blocks whom; the table below has the same in numbers" });
    const heads = ["held it, or released it last", "waited for", "waited"];
    heads.forEach((t, k) => svg.append(s("text", { x: column[k], y: 16, class: "head", "text-anchor": "middle" }, t)));
    const join = (list: Band[], l: Map<number, Spot>, r: Map<number, Spot>, x0: number, x1: number, name: (x: Band) => string): void => {
      for (const x of list) {
        const [p, q] = [l.get(x.from)!, r.get(x.to)!];
        const t = Math.max(1.5, x.ns * scale);
        const [y0, y1] = [p.y + p.out + t / 2, q.y + q.in + t / 2];
        p.out += t;
        q.in += t;
        const id = name(x);
        const on = edge !== "" && x.rows.some((i) => this.matches(rows, i, edge));
        const state = rows.state[x.rows[0]];
        const mid = (x0 + x1) / 2;
        svg.append(
          s("path", {
            d: `M${x0},${y0} C${mid},${y0} ${mid},${y1} ${x1},${y1}`, "stroke-width": t, css: { stroke: looks[state].css }, fill: "none",
            class: `band${edge === "" ? "" : on ? " on" : " off"}`, tabindex: "0", role: "button",
            "aria-label": `${duration(x.ns)}: ${this.say(id)}`,
            on: { click: () => this.pick(id), keydown: (e: KeyboardEvent) => e.key === "Enter" && this.pick(id) },
          }, s("title", {}, `${duration(x.ns)}, ${percent(x.ns, total)} of all waiting\n${this.say(id)}`)),
        );
      }
    };
    const half = 7;
    join(bands(bo, oo), spots[0], spots[1], column[0] + half, column[1] - half, (x) => `b${x.from},o${x.to}`);
    join(bands(oo, wo), spots[1], spots[2], column[1] + half, column[2] - half, (x) => `o${x.from},w${x.to}`);
    const kinds = ["b", "o", "w"];
    const named = (k: number, name: string): string => (name.length > letters[k] ? `${name.slice(0, letters[k] - 1)}…` : name);
    spots.forEach((m, k) => {
      for (const p of m.values()) {
        const name = p.id === others ? "others" : names[k](p.id);
        const id = `${kinds[k]}${p.id}`;
        const g = s("g", { class: "spot", "data-id": id, "data-ns": p.ns, tabindex: p.id === others ? undefined : "0", role: "button", "aria-label": `${named(k, name)} ${duration(p.ns)}`, on: {
          click: () => p.id !== others && this.pick(id), keydown: (e: KeyboardEvent) => e.key === "Enter" && p.id !== others && this.pick(id) } });
        g.append(s("rect", { x: column[k] - half, y: p.y, width: 2 * half, height: p.h, rx: 3, class: k === 1 ? "object" : "thread" }));
        const side = k === 0 ? -1 : 1;
        const x = k === 1 ? column[1] : column[k] + side * 14;
        const anchor = k === 0 ? "end" : k === 1 ? "middle" : "start";
        const y = k === 1 ? p.y - 3 : p.y + p.h / 2 + 4;
        g.append(
          s("text", { x, y, "text-anchor": anchor, class: "name" }, named(k, name),
            " ", s("tspan", { class: "ns", dx: 6 }, duration(p.ns))),
          s("title", {}, `${whole(name)}\n${duration(p.ns)}`),
        );
        svg.append(g);
      }
    });
    return svg;
  }

  private say(edge: string): string {
    return edge.split(",").map((p) => {
      const id = Number(p.slice(1));
      if (id < 0) return "others";
      return p[0] === "o" ? this.app.store.places.object(id) || "no object" : this.app.threadName(id);
    }).join(edge.startsWith("b") ? " held " : " blocked ");
  }

  private pick(edge: string): void {
    if (/-\d/.test(edge)) return;
    this.app.shared.choose("edge", this.app.shared.option("edge", "") === edge ? null : edge);
  }

  /** behind shows the heaviest stacks of what was picked. */
  private behind(rows: Rows, use: number[], edge: string): HTMLElement {
    const list = [...use].sort((a, b) => rows.value[b] - rows.value[a]).slice(0, edge === "" ? 1 : 4);
    return h("div", { class: "behind" },
      h("h2", {}, edge === "" ? "The heaviest of them" : `Behind: ${this.say(edge)}`),
      ...list.map((i) => {
        const b = this.blocker(rows, i);
        return h("div", { class: "pair" },
          h("div", {}, h("h3", {}, `${this.app.threadName(rows.thread[i])} waited ${duration(rows.value[i])}, ${count(rows.count[i])} ×`),
            h("p", { class: "soft" }, `${this.app.store.places.object(rows.object[i])}; the longest ${duration(rows.release[i])}`), stackList(this.app, rows.site[i], 8)),
          h("div", {}, h("h3", {}, b >= 0 ? `${this.app.threadName(b)} ${rows.state[i] === locked ? "held it" : "woke it"}` : "holder unknown"),
            h("p", { class: "soft" }, rows.releaseSite[i] ? "and released it in" : "where it was released was not recorded",
              rows.releaser[i] > 0 && rows.releaser[i] - 1 !== b ? `; ${this.app.threadName(rows.releaser[i] - 1)} released it last` : ""),
            rows.releaseSite[i] ? stackList(this.app, rows.releaseSite[i], 8) : null),
          this.holder(rows, i));
      }));
  }

  /** holder tells where the lock had been taken and what its holder did meanwhile, where that is known. */
  private holder(rows: Rows, i: number): HTMLElement | null {
    const x = holdingOf(this.found, rows, i);
    if (!x) return null;
    return h("div", {},
      x.doing.length > 0 && h("div", {}, h("h3", {}, "Meanwhile the holder was"), doingList(this.app, x)),
      x.taken > 0 && h("div", {}, h("h3", {}, "Taken in"), stackList(this.app, x.taken, 8)));
  }

  private list(rows: Rows, use: number[]): HTMLElement {
    const list = [...use].sort((a, b) => rows.value[b] - rows.value[a]).slice(0, 100);
    const { places } = this.app.store;
    return h("div", { class: "edges" }, h("h2", {}, "All of them"), table(
      ["waited", "longest", "count", "thread", "in", "for", "held or released by", "in"],
      list.map((i) => {
        const b = this.blocker(rows, i);
        return [
          duration(rows.value[i]), duration(rows.release[i]), count(rows.count[i]), this.app.threadName(rows.thread[i]), where(places, rows.site[i]),
          places.object(rows.object[i]), b >= 0 ? `${this.app.threadName(b)}${rows.flags[i] & 512 || rows.owner[i] ? "" : " (likeliest)"}` : "–",
          rows.releaseSite[i] ? short(where(places, rows.releaseSite[i])) : "–",
        ];
      }),
      [0, 1, 2],
      "Waits by thread, place and releaser",
    ));
  }

  key(e: KeyboardEvent): boolean {
    if (e.key === "Escape" && this.app.shared.option("edge", "") !== "") {
      this.app.shared.choose("edge", null);
      return true;
    }
    return false;
  }
}
