// The flame graph of the selection.

import type { App, View } from "./app.js";
import { dark, ink, ofFrame } from "./colours.js";
import { Canvas, ellipsis, fill, h, table } from "./dom.js";
import { exact, exactly, finder, shown } from "./find.js";
import { aboutFunction, heaviestLine } from "./function.js";
import { bytes, count, duration, percent, short, whole } from "./format.js";
import type { Rows } from "./store.js";
import { build, children, compare, type Cut, functions, heaviestValue, values, type Line, type Node, type Order, type Shape, type Value } from "./tree.js";

const rowHeight = 19;

interface Box {
  node: Node;
  x: number; // share of the width
  w: number;
  depth: number;
}

export class Flame implements View {
  readonly element = h("section", { class: "flame", "aria-label": "Flame graph" });
  private tools = h("div", { class: "tools" });
  private canvas = new Canvas("Flame graph; the table next to it has the same in numbers");
  private scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Flame graph: arrow keys move, Enter focuses" });
  private spacer = h("div");
  private side = h("div", { class: "functions" });
  private tip = h("div", { class: "tip", hidden: true });
  private status = h("span", { class: "soft" });
  private rows: Rows | null = null;
  private base: { rows: Rows; key: string } | null = null; // what is compared with; the address says which selection it is
  private asked = "";
  private root: Node | null = null;
  private focus: Node | null = null;
  private boxes: Box[] = [];
  private hover: Node | null = null;
  private cursor: Node | null = null; // for the keyboard

  constructor(private app: App) {
    this.scroller.append(this.canvas.element, this.spacer);
    this.element.append(this.tools, h("div", { class: "columns" }, this.scroller, this.side), this.tip);
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.draw());
    const node = (e: MouseEvent): Node | null => this.hit(e.offsetX, e.offsetY);
    this.canvas.element.addEventListener("pointermove", (e) => {
      this.hover = node(e);
      this.showTip(e);
      this.draw();
    });
    this.canvas.element.addEventListener("pointerleave", () => {
      this.hover = null;
      this.tip.hidden = true;
      this.draw();
    });
    this.canvas.element.addEventListener("click", (e) => {
      const n = node(e);
      if (n) this.focusOn(n);
    });
  }

  private get value(): Value {
    const id = this.app.shared.option("value", "");
    return values.find((v) => v.id === id)?.id ?? heaviestValue(this.app.store.about);
  }

  private format(x: number): string {
    const unit = values.find((v) => v.id === this.value)?.unit;
    return unit === "bytes" ? bytes(x) : unit === "count" ? count(x) : duration(x);
  }

  update(what: Set<string>): void {
    const byThread = this.app.shared.option("by", "") === "thread";
    const key = `${this.app.shared.key()}|${byThread}|${this.app.store.about.read}`;
    this.askBase(byThread, what.has("data"));
    this.toolbar();
    if (key !== this.asked || what.has("data")) {
      this.asked = key;
      const [from, to] = this.app.shared.range();
      this.app.ask("flame", () => this.app.store.sums(this.app.shared.state.threads, from, to, byThread, false), (rows) => {
        this.rows = rows;
        this.grow();
      });
    } else {
      this.grow();
    }
  }

  /** baseline is the selection that is kept to compare with. */
  private baseline(): { from: number; to: number; threads: number[] | null } | null {
    const m = /^(\d+)-(\d+)(?:-([\d.]+))?$/.exec(this.app.shared.option("base", ""));
    if (!m || +m[2] <= +m[1]) return null;
    const known = this.app.store.about.threads.length;
    const threads = m[3]?.split(".").map(Number).filter((t) => t < known);
    return { from: +m[1], to: Math.min(+m[2], this.app.store.about.length), threads: threads && threads.length > 0 ? threads : null };
  }

  private askBase(byThread: boolean, again: boolean): void {
    const b = this.baseline();
    if (!b || b.to <= b.from) {
      this.base = null;
      return;
    }
    const key = `${this.app.shared.option("base", "")}|${byThread}|${this.app.store.about.read}`;
    if (this.base?.key === key && !again) return;
    this.app.ask("baseline", () => this.app.store.sums(b.threads, b.from, b.to, byThread, false), (rows) => {
      this.base = { rows, key };
      this.grow();
      this.toolbar();
    });
  }

  private select(name: string, label: string, options: [string, string][], now: string, otherwise: string): HTMLElement {
    return h("label", {}, h("span", {}, label),
      h("select", { "data-option": name, on: { change: (e: Event) => {
        const v = (e.target as HTMLSelectElement).value;
        this.app.shared.choose(name, v === otherwise ? null : v);
      } } },
        ...options.map(([id, text]) => h("option", { value: id, selected: id === now }, text))));
  }

  private toolbar(): void {
    const s = this.app.shared;
    const active = (document.activeElement as HTMLElement | null)?.dataset?.option;
    fill(
      this.tools,
      this.select("value", "What", values.map((v) => [v.id, v.name]), this.value, ""),
      this.select("by", "Threads", [["", "merged"], ["thread", "one by one"]], s.option("by", ""), ""),
      this.select("order", "Order", [["heavy", "heaviest first"], ["time", "first seen first"], ["name", "by name"]], s.option("order", "heavy"), "heavy"),
      h("button", { type: "button", "aria-pressed": String(s.option("invert", "") === "1"), on: { click: () => this.invert() } }, "Inverted"),
      h("button", { type: "button", title: "compare other selections with this one", on: { click: () => this.keepBase() } }, this.base ? "New baseline" : "Compare: keep as baseline"),
      this.base && h("button", { type: "button", on: { click: () => this.app.shared.choose("base", null) } }, `Drop baseline (${this.baseTitle()})`),
      ...this.cuts(),
      this.focus && this.focus !== this.root && h("button", { type: "button", on: { click: () => this.focusOn(this.root) } }, "Reset focus"),
      this.status,
    );
    if (active) this.tools.querySelector<HTMLElement>(`[data-option="${active}"]`)?.focus();
  }

  private invert(): void {
    this.app.shared.choose("invert", this.app.shared.option("invert", "") === "1" ? null : "1");
  }

  private keepBase(): void {
    const [a, b] = this.app.shared.range().map(Math.round);
    const { threads } = this.app.shared.state;
    this.app.shared.choose("base", `${a}-${b}${threads ? `-${threads.join(".")}` : ""}`);
  }

  /** cut is what the address says to hide and to collapse. */
  private cut(): Cut {
    const list = (name: string): Set<string> => new Set(this.app.shared.option(name, "").split("\n").filter(Boolean));
    return { hide: list("hide"), hidelib: list("hidelib"), fold: list("fold"), foldlib: list("foldlib") };
  }

  private setCut(option: keyof Cut, names: Set<string>): void {
    this.app.shared.choose(option, names.size > 0 ? [...names].join("\n") : null);
  }

  /** cuts are buttons that undo what is hidden or collapsed. */
  private cuts(): HTMLElement[] {
    const cut = this.cut();
    return (["hide", "hidelib", "fold", "foldlib"] as const).flatMap((option) => [...cut[option]].map((name) => {
      const what = `${option.startsWith("hide") ? "hidden" : "collapsed"}: ${short(name)}`;
      return h("button", { type: "button", class: "chip", title: `${whole(name)}: show it again`, on: { click: () => {
        cut[option].delete(name);
        this.setCut(option, cut[option]);
      } } }, what, h("span", { "aria-hidden": "true" }, "×"));
    }));
  }

  private baseTitle(): string {
    const b = this.baseline();
    if (!b) return "";
    const who = b.threads === null ? "" : b.threads.length === 1 ? ` of ${this.app.threadName(b.threads[0])}` : ` of ${b.threads.length} threads`;
    return `${duration(b.to - b.from)} at +${duration(b.from)}${who}`;
  }

  private grow(): void {
    if (!this.rows) return;
    const shape: Shape = {
      value: this.value,
      inverted: this.app.shared.option("invert", "") === "1",
      heading: this.app.shared.option("by", "") === "thread" ? (t: number): string => this.app.threadName(t) : null,
      cut: this.cut(),
    };
    const path: string[] = []; // of the focus, to find it again
    for (let n = this.focus; n && n.parent; n = n.parent) path.unshift(`${n.name} ${n.module ?? ""}`);
    const { places } = this.app.store;
    this.root = build(this.rows, places, shape);
    this.element.dataset.total = String(this.root.total);
    if (this.base) compare(this.root, build(this.base.rows, places, shape));
    let focus = this.root;
    for (const key of path) {
      const next = [...focus.kids.values()].find((k) => `${k.name} ${k.module ?? ""}` === key);
      if (!next) break;
      focus = next;
    }
    this.focus = focus;
    this.cursor = null;
    this.layout();
    const upright = { ...shape, inverted: false };
    this.list(shape.inverted ? build(this.rows, places, upright) : this.root, this.base && build(this.base.rows, places, upright), upright);
    this.toolbar();
  }

  /** layout places the boxes: the focus and its callers take the whole width. */
  private layout(): void {
    this.boxes = [];
    if (!this.root || !this.focus) return;
    const order = this.app.shared.option("order", "heavy") as Order;
    const above: Node[] = [];
    for (let n: Node | null = this.focus; n; n = n.parent) above.unshift(n);
    above.forEach((node, depth) => this.boxes.push({ node, x: 0, w: 1, depth }));
    let deepest = above.length;
    const visit = (n: Node, x: number, w: number, depth: number): void => {
      deepest = Math.max(deepest, depth);
      const size = (k: Node): number => (this.base ? Math.max(k.total, k.base) : k.total);
      const kids = children(n, order);
      const all = Math.max(n.total, kids.reduce((sum, k) => sum + size(k), 0));
      for (const k of kids) {
        const kw = all > 0 ? (size(k) / all) * w : 0;
        if (kw * this.canvas.width > 0.3) {
          this.boxes.push({ node: k, x, w: kw, depth });
          visit(k, x, kw, depth + 1);
        }
        x += kw;
      }
    };
    visit(this.focus, 0, 1, above.length);
    this.spacer.style.height = `${Math.max(0, (deepest + 1) * rowHeight - this.scroller.clientHeight)}px`;
    this.draw();
  }

  private draw(): void {
    if (this.canvas.width !== this.scroller.clientWidth || this.canvas.height !== this.scroller.clientHeight) {
      if (!this.canvas.fit(this.scroller.clientWidth, Math.max(1, this.scroller.clientHeight))) return;
      if (this.root && this.boxes.length > 0) {
        this.layout();
        return;
      }
    }
    const { g, width, height } = this.canvas;
    const meant = finder(this.app.shared.state.find);
    g.clearRect(0, 0, width, height);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    const top = this.scroller.scrollTop;
    if (this.root && this.root.total === 0) {
      g.fillStyle = ink("soft");
      g.fillText(this.value === "inuse" || this.value === "live" ? "Nothing that was allocated in the selection was still in use at its end." : "Nothing of this kind was recorded in the selection.", 16, 30);
    }
    let found = 0;
    let under: Box | null = null;
    for (const b of this.boxes) {
      const hit = meant !== null && b.node.frame >= 0 && meant(b.node.name);
      if (hit && b.w > 0 && !(under && b.depth > under.depth && b.x >= under.x && b.x + b.w <= under.x + under.w + 1e-9)) {
        found += b.node.total;
        under = b;
      }
      const y = b.depth * rowHeight - top;
      if (y < -rowHeight || y > height || (this.root && this.root.total === 0)) continue;
      this.box(b, y, hit, meant !== null);
    }
    this.status.textContent = meant && this.root ? `${shown(this.app.shared.state.find)}: ${this.format(found)}, ${percent(found, this.focus?.total ?? 0)}` : "";
  }

  private box(b: Box, y: number, hit: boolean, searching: boolean): void {
    const { g, width } = this.canvas;
    const n = b.node;
    const x = b.x * width;
    const w = Math.max(0.5, b.w * width - 0.8);
    g.globalAlpha = searching && !hit ? 0.4 : this.focus && n !== this.focus && b.w === 1 && b.depth < depthOf(this.focus) ? 0.55 : 1;
    g.fillStyle = hit ? ink("find") : this.base ? difference(n) : n.frame < 0 ? ink("lane") : ofFrame(n.name, n.module);
    g.fillRect(x, y, w, rowHeight - 1);
    g.globalAlpha = 1;
    if (n === this.hover || n === this.cursor) {
      g.strokeStyle = ink("text");
      g.lineWidth = 1.5;
      g.strokeRect(x + 0.75, y + 0.75, Math.max(1, w - 1.5), rowHeight - 2.5);
    }
    if (w > 24) {
      g.fillStyle = hit ? "#1f2933" : this.base ? "#1f2933" : ink("frame-text");
      const name = n.parent === null ? `${n.name} ${this.format(n.total)}` : short(n.name);
      g.fillText(ellipsis(g, name, w - 8), x + 4, y + rowHeight / 2);
    }
  }

  private hit(x: number, y: number): Node | null {
    const depth = Math.floor((y + this.scroller.scrollTop) / rowHeight);
    const at = x / this.canvas.width;
    return this.boxes.find((b) => b.depth === depth && at >= b.x && at < b.x + b.w)?.node ?? null;
  }

  private focusOn(n: Node | null): void {
    this.focus = n ?? this.root;
    this.cursor = this.focus;
    this.layout();
    this.toolbar();
  }

  private describe(n: Node): string[] {
    const all = this.root?.total ?? 0;
    const out = [whole(n.name), `${this.format(n.total)}, ${percent(n.total, all)} of all; ${this.format(n.self)} itself`];
    if (this.base) out.push(`baseline ${percent(n.base, all)}: ${n.total >= n.base ? "+" : "−"}${percent(Math.abs(n.total - n.base), all)}`);
    if (n.module) out.push(n.module);
    const file = n.frame >= 0 && this.app.store.places.frames[n.frame].n === n.name ? this.app.store.places.frames[n.frame].f : "";
    if (file) out.push(whole(file) + heaviestLine(n));
    return out;
  }

  private showTip(e: MouseEvent): void {
    this.tip.hidden = !this.hover;
    if (!this.hover) return;
    this.tip.replaceChildren(...this.describe(this.hover).map((t, i) => h("div", { class: i === 0 ? "strong" : undefined }, t)));
    const box = this.element.getBoundingClientRect();
    this.tip.style.left = `${Math.max(4, Math.min(e.clientX - box.left + 14, box.width - 330))}px`;
    this.tip.style.top = `${Math.min(e.clientY - box.top + 16, box.height - 90)}px`;
  }

  private list(root: Node, base: Node | null, shape: Shape): void {
    const lines = functions(root).slice(0, 200);
    const before = new Map<string, number>();
    if (base) for (const l of functions(base)) before.set(`${l.name} ${l.module ?? ""}`, l.self);
    const scale = base && base.total > 0 ? root.total / base.total : 0;
    const change = (l: Line): string => {
      const by = l.self - (before.get(`${l.name} ${l.module ?? ""}`) ?? 0) * scale;
      return Math.abs(by) < root.total / 2000 ? "" : `${by > 0 ? "+" : "−"}${percent(Math.abs(by), root.total)}`;
    };
    fill(
      this.side,
      this.chosen(root, shape),
      h("h2", {}, "Functions"),
      lines.length === 0
        ? h("p", { class: "soft" }, "none")
        : table(
            ["self", "self %", ...(base ? ["change"] : []), "total", "total %", "function"],
            lines.map((l) => [
              l.self > 0 ? this.format(l.self) : "", l.self > 0 ? percent(l.self, root.total) : "", ...(base ? [change(l)] : []), this.format(l.total), percent(l.total, root.total),
              h("button", { type: "button", class: "link", title: whole(l.name), on: { click: () => this.app.shared.set({ find: exactly(l.name) }) } }, short(l.name)),
            ]),
            base ? [0, 1, 2, 3, 4] : [0, 1, 2, 3],
            base ? "Functions by the weight of their own code in the selection, and by how much of all that differs from the baseline" : "Functions by the weight of their own code in the selection",
          ),
    );
  }

  /** chosen is about the one function that is searched for. */
  private chosen(root: Node, shape: Shape): HTMLElement | null {
    const name = exact(this.app.shared.state.find);
    if (name === "" || !this.rows) return null;
    return aboutFunction(this.app, { root, rows: this.rows, shape, name, format: (x) => this.format(x), add: (option, what) => {
      const cut = this.cut();
      this.setCut(option, cut[option].add(what));
    } });
  }

  key(e: KeyboardEvent): boolean {
    const at = this.cursor ?? this.focus;
    if (!at) return false;
    const order = this.app.shared.option("order", "heavy") as Order;
    const move = (n: Node | null | undefined): boolean => {
      if (n) {
        this.cursor = n;
        this.draw();
        this.app.shared.set({});
        this.canvas.element.setAttribute("aria-label", this.describe(n).join(", "));
      }
      return true;
    };
    const siblings = at.parent ? children(at.parent, order) : [at];
    const i = siblings.indexOf(at);
    switch (e.key) {
      case "ArrowDown": return move(children(at, order)[0]);
      case "ArrowUp": return move(at.parent);
      case "ArrowLeft": return move(siblings[i - 1]);
      case "ArrowRight": return move(siblings[i + 1]);
      case "Enter": this.focusOn(at); return true;
      case "i": this.invert(); return true;
      case "b": this.keepBase(); return true;
      case "Backspace": this.focusOn(this.focus?.parent ?? this.root); return true;
      case "Escape": if (this.focus !== this.root) { this.focusOn(this.root); return true; } return false;
    }
    return false;
  }
}

function depthOf(n: Node): number {
  let d = 0;
  for (let p = n.parent; p; p = p.parent) d++;
  return d;
}

/** difference is orange for more than in the baseline, blue for less. */
function difference(n: Node): string {
  const most = Math.max(n.total, n.base);
  const d = most > 0 ? (n.total - n.base) / most : 0;
  const l = dark() ? 62 : 92 - Math.abs(d) * 32;
  return d >= 0 ? `hsl(24 ${Math.round(d * 90)}% ${l}%)` : `hsl(208 ${Math.round(-d * 80)}% ${l}%)`;
}
