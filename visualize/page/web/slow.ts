// Where slow requests went: the longest calls of a function, or the longest turns of a loop that waits for work, each
// divided into what the thread did in that time.

import type { App, View } from "./app.js";
import { locked, looks, off, ready, running } from "./colours.js";
import { fill, h } from "./dom.js";
import { count, duration, percent, short, whole } from "./format.js";
import { bar, byState, readyText } from "./piece.js";
import type { Rows, Slow } from "./store.js";
import { heaviest, where } from "./summary.js";
import { build, functions, uncut } from "./tree.js";

const choices = [10, 20, 50, 100];

export class SlowView implements View {
  readonly element = h("section", { class: "slow", "aria-label": "Slow requests" });
  private tools = h("div", { class: "tools" });
  private body = h("div", { class: "slow-body", tabindex: "0", role: "region", "aria-label": "The slowest of them" });
  private names = h("datalist", { id: "functions" });
  private found: Slow | null = null;
  private asked = "";
  private named = -1;
  private running = 0; // number of the latest search: answers to earlier ones are dropped

  constructor(private app: App) {
    this.element.append(this.tools, this.names, this.body);
  }

  /** what is searched for: a function's name, or the function whose returns begin a turn. */
  private subject(): { turns: boolean; name: string } {
    const { hooks } = this.app.store.about;
    const kind = this.app.shared.option("slow", "");
    if (kind.startsWith("t:")) return { turns: true, name: kind.slice(2) };
    if (kind.startsWith("f:")) return { turns: false, name: kind.slice(2) };
    const first = ["epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "accept", "accept4"].find((x) => hooks.includes(x)) ?? hooks[0];
    return first ? { turns: true, name: first } : { turns: false, name: "" };
  }

  /** most is how many to show. */
  private most(): number {
    const n = Number(this.app.shared.option("n", ""));
    return choices.includes(n) ? n : 20;
  }

  private toolbar(): void {
    const { turns, name } = this.subject();
    const { hooks } = this.app.store.about;
    const input = h("input", { type: "search", list: "functions", value: turns ? "" : name, placeholder: "a function, such as handle_request", size: "34", "aria-label": "Function", "data-option": "function",
      on: { change: (e: Event) => {
        const v = (e.target as HTMLInputElement).value.trim();
        this.app.shared.choose("slow", v === "" ? null : `f:${v}`);
      } } });
    const active = document.activeElement?.getAttribute("data-option");
    fill(
      this.tools,
      h("label", {}, h("span", {}, "Turns between returns of"),
        h("select", { "data-option": "turns", on: { change: (e: Event) => this.app.shared.choose("slow", `t:${(e.target as HTMLSelectElement).value}`) } },
          !turns && h("option", { value: "", selected: true }, "–"),
          ...hooks.map((x) => h("option", { value: x, selected: turns && x === name }, x)))),
      h("label", {}, h("span", {}, "or calls of"), input),
      h("label", {}, h("span", {}, "Show"),
        h("select", { "data-option": "n", on: { change: (e: Event) => this.app.shared.choose("n", (e.target as HTMLSelectElement).value) } },
          ...choices.map((x) => h("option", { value: x, selected: x === this.most() }, `slowest ${x}`)))),
    );
    if (active) this.tools.querySelector<HTMLElement>(`[data-option="${active}"]`)?.focus();
  }

  update(what: Set<string>): void {
    this.toolbar();
    const { turns, name } = this.subject();
    const n = this.most();
    const key = [this.app.shared.key(), turns, name, n, this.app.store.about.read].join("|");
    if (key === this.asked && !what.has("data")) return;
    this.asked = key;
    const [from, to] = this.app.shared.range();
    this.suggest();
    if (name === "") {
      this.empty();
      return;
    }
    this.app.ask("slow", () => this.app.store.slowest(this.app.shared.state.threads, from, to, name, turns, n), (found) => {
      this.found = found;
      this.show();
    });
  }

  /** suggest fills the list of functions that can be chosen. */
  private suggest(): void {
    if (this.named === this.app.store.about.read) return;
    this.named = this.app.store.about.read;
    this.app.ask("names", () => this.app.store.sums(null, 0, this.app.store.about.length, false, false), (rows) => {
      const root = build(rows, this.app.store.places, { value: "wall", inverted: false, heading: null, cut: uncut });
      const list = functions(root).sort((a, b) => b.total - a.total).slice(0, 400);
      fill(this.names, ...list.map((l) => h("option", { value: l.name })));
      if (this.subject().name === "") this.empty();
    });
  }

  private empty(): void {
    fill(this.body, h("div", { class: "empty" }, h("h2", {}, "Which requests?"),
      h("p", { class: "soft" }, "Name a function above: its longest calls are listed with where their time went."),
      h("p", {}, ...[...this.names.children].slice(0, 12).map((o) => {
        const v = (o as HTMLOptionElement).value;
        return h("button", { type: "button", title: whole(v), on: { click: () => this.app.shared.choose("slow", `f:${v}`) } }, short(v));
      }))));
  }

  private show(): void {
    const found = this.found;
    if (!found) return;
    const { turns, name } = this.subject();
    const what = turns ? `turns between returns of ${name}` : `calls of ${short(name)}`;
    const run = ++this.running;
    if (found.start.length === 0) {
      fill(this.body, h("div", { class: "empty" }, h("h2", {}, `No ${what} in this selection`),
        h("p", { class: "soft" }, turns
          ? `Only calls that waited longer than ${duration(this.app.store.about.callNs)} are recorded, and a turn needs two.`
          : "Calls shorter than the time between two samples are seen only if something happened in them.")));
      return;
    }
    const longest = found.dur[0];
    const list = h("ol", { class: "requests" });
    fill(this.body,
      h("h2", {}, `The slowest ${found.start.length} of ${count(found.seen)} ${what}`),
      h("p", { class: "soft" }, turns
        ? `A turn runs from one return of ${name} to the next call of it that waited; turns separated by shorter waits than ${duration(this.app.store.about.callNs)} look like one.`
        : "A call's edges lie between two samples: they are right to about a tick."),
      list);
    const cells = [...found.start.keys()].map((i) => {
      const [t, from, ns] = [found.thread[i], found.start[i], found.dur[i]];
      const parts = h("div", { class: "parts soft" }, "…");
      const strip = h("div", { class: "strip" });
      strip.style.width = `${Math.max(3, (100 * ns) / longest)}%`;
      list.append(h("li", {},
        h("div", { class: "row" },
          h("b", { class: "num" }, duration(ns)),
          h("button", { type: "button", class: "link", title: "Show it in the timeline", on: { click: () => this.app.goTo(t, from, from + ns) } }, `${this.app.threadName(t)} at +${duration(from)}`)),
        strip, parts));
      return { t, from, ns, parts, strip };
    });
    void (async () => {
      for (const c of cells) {
        if (run !== this.running) return;
        try {
          const { store } = this.app;
          const [rows, counted] = await Promise.all([store.sums([c.t], c.from, c.from + c.ns, true, true), store.ready([c.t], c.from, c.from + c.ns)]);
          const by = byState(rows);
          const known = by.reduce((sum, [, ns]) => sum + ns, 0);
          fill(c.strip, bar([...by, [0, Math.max(0, c.ns - known)]], c.ns));
          const ready = readyText(counted, c.ns);
          // it is no part next to the others: it lies within them
          fill(c.parts, ...this.parts(rows, c.ns, known), ready && h("span", { class: "ready" }, ready));
        } catch (e) {
          fill(c.parts, e instanceof Error ? e.message : String(e));
        }
      }
    })();
  }

  /** parts says in words where a request's time went. */
  private parts(rows: Rows, all: number, known: number): HTMLElement[] {
    const { places } = this.app.store;
    const out: [number, number, string][] = [];
    const add = (state: number, list: [string, number][], most: number): void => {
      for (const [text, ns] of list.slice(0, most)) out.push([state, ns, text]);
    };
    add(running, heaviest(rows, (i) => rows.state[i] === running, (i) => `running ${short(places.leaf(rows.site[i]))}`), 3);
    add(off, heaviest(rows, (i) => rows.state[i] === off, () => looks[off].brief), 1);
    add(ready, heaviest(rows, (i) => rows.state[i] === ready, () => looks[ready].name), 1);
    add(locked, heaviest(rows, (i) => rows.state[i] === locked, (i) => {
      const b = rows.owner[i] || rows.releaser[i];
      return `${places.object(rows.object[i])}${b ? ` held by ${this.app.threadName(b - 1)}` : ""}`;
    }), 3);
    for (const s of [4, 5, 6, 7, 8]) {
      add(s, heaviest(rows, (i) => rows.state[i] === s, (i) => `${short(places.leaf(rows.site[i]))} in ${where(places, rows.site[i])}`), 3);
    }
    if (all - known > all / 1000) out.push([0, all - known, "unknown"]);
    out.sort((a, b) => b[1] - a[1]);
    return out.filter(([, ns]) => ns >= all / 200).slice(0, 7).map(([s, ns, text]) =>
      h("span", { class: "part" }, h("i", { class: "dot", css: { background: looks[s].css } }), h("b", {}, duration(ns)), ` ${percent(ns, all)} `, whole(text)));
  }
}
