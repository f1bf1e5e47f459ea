// The page: opens the data, and holds the views, what they share, and the keyboard.

import type { App, View } from "./app.js";
import { Blocks } from "./blocks.js";
import { themed } from "./colours.js";
import { fill, h } from "./dom.js";
import { Embedded } from "./embedded.js";
import { Flame } from "./flame.js";
import { count, duration, percent, whole } from "./format.js";
import { Help } from "./help.js";
import { Overview } from "./overview.js";
import { Gone, Remote } from "./remote.js";
import { SlowView } from "./slow.js";
import { Shared, type State, type ViewName } from "./state.js";
import type { Chains, Store } from "./store.js";
import { Timeline } from "./timeline.js";
import { Trust } from "./trust.js";

const names: [ViewName, string][] = [
  ["timeline", "Timeline"],
  ["flame", "Flame graph"],
  ["blocks", "Who blocks whom"],
  ["slow", "Slow requests"],
  ["trust", "Trust"],
];

class Page implements App {
  readonly shared: Shared;
  chains: Chains | null = null;
  private views: Record<ViewName, View>;
  private timeline: Timeline;
  private overview: Overview;
  private help = new Help();
  private header = h("header");
  private where = h("div", { class: "where", role: "status" });
  private search = h("input", { type: "search", placeholder: "Search  /", "aria-label": "Search for a function or thread", size: "18" });
  private tabs = h("nav", { role: "tablist", "aria-label": "Views" });
  private main = h("main");
  private side = h("aside", { hidden: true, "aria-label": "Details" });
  private bottom = h("footer");
  private problem = h("div", { class: "problem", role: "alert", hidden: true });
  private latest = new Map<string, number>();
  private pending = 0;
  private told = ""; // by tellWhere
  private named = new Map<string, number>(); // how many threads have a name
  private namedOf: unknown = null;

  constructor(readonly store: Store, root: HTMLElement) {
    this.shared = new Shared(() => this.store.about.length, () => this.store.about.threads.length);
    this.timeline = new Timeline(this);
    this.overview = new Overview(this);
    this.views = { timeline: this.timeline, flame: new Flame(this), blocks: new Blocks(this), slow: new SlowView(this), trust: new Trust(this) };
    const { about } = store;
    document.title = `${about.command.split(" ")[0].split("/").pop() || "recording"} · hbtrace`;
    this.header.append(
      h("div", { class: "title" }, h("b", {}, "hbtrace"), h("span", { title: about.command }, whole(about.command || "a recording"))),
      h("h1", { class: "hidden" }, `hbtrace: ${whole(about.command || "a recording")}`),
      this.tabs,
      this.where,
      this.search,
      h("button", { type: "button", title: "Light or dark (t)", "aria-label": "Light or dark", on: { click: () => this.theme() } }, "◐"),
      h("button", { type: "button", title: "Keys (?)", "aria-label": "Keys", on: { click: () => this.help.toggle() } }, "?"),
    );
    const top = h("section", { class: "top", "aria-label": "Overview" }, this.overview.element);
    fill(root, this.header, top, this.problem, h("div", { class: "middle" }, this.main, this.side), this.bottom, this.help.element);
    this.search.addEventListener("input", () => this.shared.set({ find: this.search.value }));
    new ResizeObserver(() => this.overview.update()).observe(top);
    this.shared.on((what) => this.update(what as Set<string>));
    addEventListener("keydown", (e) => this.key(e));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      themed();
      this.update(new Set(["theme"]));
    });
    this.theme(localTheme());
    this.update(new Set(["view", "data"]));
    if (about.chained) this.askChains();
    else void this.follow();
  }

  /** follow asks how far the server has read, until it has read everything and found what waits were spent on. */
  private async follow(): Promise<void> {
    for (let wait = 150; ; wait = Math.min(2000, wait * 1.5)) {
      await new Promise((r) => setTimeout(r, wait));
      const end = this.store.about.length;
      try {
        if (!(await this.store.refresh())) continue;
      } catch (e) {
        this.say(e);
        return;
      }
      if (this.shared.state.to === end) this.shared.window(this.shared.state.from, this.store.about.length);
      this.update(new Set(["data"]));
      if (this.store.about.chained) {
        this.askChains();
        return;
      }
    }
  }

  private askChains(): void {
    this.ask("chains", () => this.store.chains(), (chains) => {
      this.chains = chains;
      this.update(new Set(["data"])); // objects may have better names now
    });
  }

  threadName(i: number): string {
    const t = this.store.about.threads[i];
    if (!t) return "unknown thread";
    if (!t.name) return `thread ${t.tid}`;
    return this.alone(i) ? t.name : `${t.name}/${t.tid}`;
  }

  alone(i: number): boolean {
    const { threads } = this.store.about;
    if (this.namedOf !== threads) {
      this.namedOf = threads;
      this.named.clear();
      for (const t of threads) this.named.set(t.name, (this.named.get(t.name) ?? 0) + 1);
    }
    return this.named.get(threads[i].name) === 1;
  }

  detail(content: Node | null): void {
    this.side.hidden = content === null;
    if (content) {
      fill(this.side, h("button", { type: "button", class: "close", "aria-label": "Close details", on: { click: () => this.detail(null) } }, "×"), content);
    }
  }

  ask<T>(name: string, question: () => Promise<T>, then: (answer: T) => void): void {
    const n = (this.latest.get(name) ?? 0) + 1;
    this.latest.set(name, n);
    this.pending++;
    document.body.dataset.pending = String(this.pending);
    question()
      .then((answer) => {
        if (this.latest.get(name) === n) then(answer);
        this.problem.hidden = true;
      })
      .catch((e: unknown) => this.say(e))
      .finally(() => {
        this.pending--;
        document.body.dataset.pending = String(this.pending);
      });
  }

  private say(e: unknown): void {
    this.problem.hidden = false;
    this.problem.textContent = e instanceof Error ? e.message : String(e);
    if (!(e instanceof Gone)) console.error(e);
  }

  goTo(thread: number, from: number, to: number): void {
    const room = (to - from) * 0.3;
    this.shared.set({ view: "timeline", threads: [thread] });
    this.shared.zoomTo(from - room, to + room);
    requestAnimationFrame(() => requestAnimationFrame(() => this.timeline.reveal(thread)));
  }

  private update(what: Set<string>): void {
    const { state } = this.shared;
    if (what.has("view")) {
      this.detail(null); // it is about something that is shown no more
      fill(this.tabs, ...names.map(([id, text], i) =>
        h("button", { type: "button", role: "tab", "aria-selected": String(id === state.view), title: `${text} (${i + 1})`, on: { click: () => this.shared.set({ view: id }) } }, text)));
      fill(this.main, this.views[state.view].element);
      this.views[state.view].update(new Set([...what, "shown"]));
    } else {
      this.views[state.view].update(what);
    }
    if (document.activeElement !== this.search) this.search.value = state.find;
    this.overview.update();
    this.tellWhere(state);
    if (what.has("data")) this.tellTrust();
  }

  private tellWhere(state: State): void {
    const [from, to] = this.shared.range();
    const all = this.store.about.length;
    const n = this.store.about.threads.length;
    const threads = state.threads === null ? `${count(n)} thread${n === 1 ? "" : "s"}` : state.threads.length === 1 ? this.threadName(state.threads[0]) : `${state.threads.length} threads`;
    const time = from === 0 && to === all ? `all ${duration(all)}` : `${duration(to - from)} from +${duration(from)}`;
    const reset = state.picked !== null || state.threads !== null;
    if (this.told === `${time}|${threads}|${reset}`) return; // amid a movement most frames say the same
    this.told = `${time}|${threads}|${reset}`;
    fill(this.where, h("span", {}, h("b", {}, time), ` · ${threads}`),
      reset && h("button", { type: "button", class: "link", title: "Esc", on: { click: () => this.shared.set({ picked: null, threads: null }) } }, "everything"));
  }

  private tellTrust(): void {
    const a = this.store.about;
    if (!a.done) {
      fill(this.bottom, h("progress", { max: "1", value: String(a.events > 0 ? Math.min(1, a.read / a.events) : 0) }), h("span", {}, `reading: ${count(a.read)} events${a.events > 0 ? ` of ${count(a.events)}` : ""}`));
      return;
    }
    const sum = (f: (t: (typeof a.threads)[number]) => number): number => a.threads.reduce((n, t) => n + f(t), 0);
    const [exact, sampled, unknown] = [sum((t) => t.exact), sum((t) => t.sampled), sum((t) => t.unknown)];
    const all = exact + sampled + unknown;
    const lost = Math.max(a.stats.Lost, a.doubt.lost);
    fill(
      this.bottom,
      h("button", { type: "button", class: "link", on: { click: () => this.shared.set({ view: "trust" }) } },
        `threads’ time: ${percent(exact, all)} exact, ${percent(sampled, all)} sampled, ${percent(unknown, all)} unknown · ${lost > 0 ? `${count(lost)} records lost` : "nothing lost"}${a.stats.Complete ? "" : " · the recording was not closed"}`),
      a.failed && h("span", { class: "bad" }, whole(a.failed)),
      a.resolution > 0 && h("span", {}, `what is shorter than ${duration(a.resolution)} is added up`),
    );
  }

  private theme(to?: string): void {
    const order = ["", "light", "dark"];
    const root = document.documentElement;
    const now = to ?? order[(order.indexOf(root.dataset.theme ?? "") + 1) % 3];
    if (now) root.dataset.theme = now;
    else delete root.dataset.theme;
    themed();
    try {
      localStorage.setItem("hbtrace.theme", now);
    } catch {
      // a page opened from a file may have no storage: the choice lasts as long as the page
    }
    if (to === undefined) this.update(new Set(["theme"]));
  }

  private key(e: KeyboardEvent): void {
    const typing = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
    if (e.ctrlKey || e.metaKey || e.altKey || this.help.element.open) return;
    if (typing) {
      if (e.key === "Escape" || e.key === "Enter") (e.target as HTMLElement).blur();
      if (e.key === "Escape" && e.target === this.search) this.shared.set({ find: "" });
      return;
    }
    const onButton = e.target instanceof HTMLButtonElement || e.target instanceof SVGElement;
    if (onButton && (e.key === "Enter" || e.key === " ")) return;
    if (this.views[this.shared.state.view].key?.(e) || this.common(e.key)) e.preventDefault();
  }

  private common(key: string): boolean {
    const { state } = this.shared;
    const n = Number(key);
    if (n >= 1 && n <= names.length) {
      this.shared.set({ view: names[n - 1][0] });
      return true;
    }
    switch (key) {
      case "?": this.help.toggle(); return true;
      case "/": this.search.focus(); this.search.select(); return true;
      case "0": this.shared.zoomTo(0, this.store.about.length); return true;
      case "z": if (state.picked) this.shared.zoomTo(...state.picked); return true;
      case "Z": this.shared.zoomBack(); return true;
      case "t": this.theme(); return true;
      case "Escape":
        if (!this.side.hidden) this.detail(null);
        else if (state.find) this.shared.set({ find: "" });
        else this.shared.set({ picked: null, threads: null });
        return true;
    }
    return false;
  }
}

function localTheme(): string {
  try {
    return localStorage.getItem("hbtrace.theme") ?? "";
  } catch {
    return "";
  }
}

async function start(): Promise<void> {
  const root = document.getElementById("app")!;
  try {
    const data = document.getElementById("recording")?.textContent;
    const store = data ? await Embedded.open(data) : await Remote.open();
    const page = new Page(store, root);
    // for tests and for the console
    (globalThis as unknown as { hbtrace: unknown }).hbtrace = { store, shared: page.shared };
  } catch (e) {
    fill(root, h("div", { class: "problem", role: "alert" }, e instanceof Error ? e.message : String(e)));
    if (!(e instanceof Gone)) console.error(e);
  }
}

void start();
