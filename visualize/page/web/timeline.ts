// The timeline: what each thread did over time, arrows from releaser to waiter, charts above.

import type { App, View } from "./app.js";
import { drawArrows, type Selected } from "./arrows.js";
import { depthsOf, drawCalls } from "./calls.js";
import { chartHeight, type Charted, Curves, drawCharts, rulerHeight } from "./charts.js";
import { dark, ink, looks, off, ready, running } from "./colours.js";
import { Canvas, fill, h } from "./dom.js";
import { exactly, finder } from "./find.js";
import { duration, steps } from "./format.js";
import { index, stripHeight, Strips } from "./lanes.js";
import { order } from "./order.js";
import { aboutPiece } from "./piece.js";
import { type Plot, rowHeight } from "./plot.js";
import type { Calls, Rows } from "./store.js";
import { Summary } from "./summary.js";
import { label, pieceTexts } from "./texts.js";
import { tipOf } from "./tip.js";

const gap = 7;
const restMs = 90; // without movement: the picture is made exact
const usualDepth = 6; // of calls, where lanes open by themselves

interface Lane {
  thread: number;
  y: number;
  open: boolean;
  depth: number; // rows of calls
  skip: number; // outer calls that are always the same
  deeper: number; // rows below that would be almost empty
}

export class Timeline implements View, Plot {
  readonly element = h("section", { class: "timeline", "aria-label": "Timeline" });
  private summary: Summary;
  private charts = new Canvas("Charts of CPU use, waiting for locks and allocation over time");
  private canvas = new Canvas("Threads over time; the Trust view has the same in numbers");
  private scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Lanes, one for each thread" });
  private spacer = h("div");
  private tip = h("div", { class: "tip", hidden: true });
  private legend = h("div", { class: "legend", "aria-label": "What the colours mean" });
  private strips = new Strips();
  private curves = new Curves();
  private painted = dark(); // whether bitmaps are for the dark
  private lanes: Lane[] = [];
  private rows: Rows | null = null;
  private rowsOf = new Map<number, [number, number]>();
  private calls: Calls | null = null;
  private callsOf = new Map<number, [number, number]>();
  private chart: Charted | null = null;
  private asked = "";
  gutter = 200;
  private drawing = false;
  private timer = 0;
  private waiting = 0; // answers that are still to come
  private moving = false;
  private resting = 0;
  private hover: { x: number; y: number } | null = null;
  private brush: [number, number] | null = null;
  private selected: Selected | null = null;

  constructor(readonly app: App) {
    this.summary = new Summary(app);
    const chartBox = h("div", { class: "charts" }, this.charts.element);
    this.scroller.append(this.canvas.element, this.spacer);
    this.element.append(this.summary.element, this.legend, chartBox, this.scroller, this.tip);
    this.scroller.addEventListener("scroll", () => this.draw());
    const resized = new ResizeObserver(() => this.update(new Set(["size"])));
    resized.observe(this.element);
    resized.observe(this.scroller);
    this.pointer(this.canvas.element, true);
    this.pointer(this.charts.element, false);
  }

  private layout(): void {
    const threads = order(this.app);
    const open = this.opened(threads);
    let y = gap;
    this.lanes = threads.map((thread) => {
      const lane: Lane = { thread, y, open: open.has(thread), depth: 0, skip: 0, deeper: 0 };
      if (lane.open) {
        const r = this.callsOf.get(thread);
        const { from, to } = this.app.shared.state;
        if (this.calls && r) { // not before its calls are there: rows of nothing say that there are none
          const d = depthsOf(this.calls, r, to - from);
          [lane.skip, lane.depth, lane.deeper] = [d.skip, d.rows, d.deeper];
          y += lane.depth * rowHeight + 4;
        }
      }
      y += stripHeight + gap;
      return lane;
    });
    this.spacer.style.height = `${Math.max(0, y - this.canvas.height)}px`;
    this.element.dataset.opened = String(this.lanes.filter((l) => l.depth > 0).length); // for tests
  }

  /** opened are the lanes whose calls are shown: those that were chosen, or as many of the busiest as there is room for. */
  private opened(order: number[]): Set<number> {
    const chosen = this.app.shared.state.options.open;
    if (chosen !== undefined) return new Set(chosen.split(".").filter(Boolean).map(Number));
    const room = this.canvas.height - order.length * (stripHeight + gap) - gap;
    const busiest = [...order].sort((a, b) => this.app.store.about.threads[b].total[running] - this.app.store.about.threads[a].total[running]);
    return new Set(busiest.slice(0, Math.max(0, Math.floor(room / (usualDepth * rowHeight)))).filter((t) => this.app.store.about.threads[t].total[running] > 0));
  }

  private shown(): Lane[] {
    const top = this.scroller.scrollTop;
    const bottom = top + this.canvas.height;
    return this.lanes.filter((l) => l.y < bottom && l.y + stripHeight + gap + l.depth * rowHeight > top);
  }

  update(what: Set<string>): void {
    this.summary.update(what);
    const box = this.element.getBoundingClientRect();
    if (box.width === 0) return;
    this.gutter = Math.max(140, Math.min(230, box.width * 0.16));
    const width = this.scroller.clientWidth;
    this.charts.fit(width, 3 * chartHeight + rulerHeight);
    this.canvas.fit(width, Math.max(40, this.scroller.clientHeight));
    if (what.has("data")) this.asked = "";
    if (what.has("from") || what.has("to")) this.move();
    if (["from", "to", "threads", "options", "shown", "data"].some((x) => what.has(x))) this.tip.hidden = true; // what lay under the pointer has moved
    if (what.has("data") || what.has("shown")) this.explain();
    this.layout();
    if (what.has("size") || what.has("shown")) this.draw();
    else this.render(); // this is within a frame already
    this.fetch();
  }

  /** move says that what is visible moves: until it rests, frames are made of what is there. */
  private move(): void {
    this.moving = true;
    clearTimeout(this.resting);
    this.resting = window.setTimeout(() => {
      this.moving = false;
      this.draw();
    }, restMs);
  }

  /** explain says what the colours mean that this recording has. */
  private explain(): void {
    const { threads } = this.app.store.about;
    fill(this.legend,
      ...[1, 9, 2, 3, 4, 5, 6, 8, 7].filter((s) => threads.some((t) => t.total[s] > 0)).map((s) =>
        h("span", { title: looks[s].name }, h("i", { css: { background: looks[s].css } }), looks[s].brief)),
      h("span", { title: "no interval and no sample tells" }, h("i", { class: "hatch" }), "unknown"));
  }

  plotWidth(): number {
    return Math.max(20, this.canvas.width - this.gutter - 8);
  }

  x(ns: number): number {
    const { from, to } = this.app.shared.state;
    return this.gutter + ((ns - from) / (to - from)) * this.plotWidth();
  }

  time(x: number): number {
    const { from, to } = this.app.shared.state;
    return from + ((x - this.gutter) / this.plotWidth()) * (to - from);
  }

  /**
   * fetch asks for what is shown, half a screen more on both sides, unless answers are still to come: then they ask on. So
   * amid a movement there is one question at a time, for where it has got to.
   */
  private fetch(): void {
    if (this.timer !== 0) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      if (this.waiting === 0) this.askFor();
    }, this.moving ? restMs : 20);
  }

  private askFor(): void {
    const { from, to, threads } = this.app.shared.state;
    const lanes = this.shown();
    const list = lanes.map((l) => l.thread);
    const margin = (to - from) / 2;
    const [a, b] = [Math.max(0, from - margin), Math.min(this.app.store.about.length, to + margin)];
    const cols = this.plotWidth() * this.canvas.density;
    const res = (to - from) / cols;
    const key = [from, to, cols, list.join("."), lanes.filter((l) => l.open).map((l) => l.thread), threads, this.app.store.about.read].join("|");
    if (key === this.asked || !this.element.isConnected) return;
    this.asked = key;
    if (list.length === 0) return;
    this.ask("lanes", () => this.app.store.lanes(list, a, b, res), (rows) => {
      this.rows = rows;
      this.rowsOf = index(rows.thread);
    });
    this.ask("chart", () => this.app.store.chart(threads, a, b, Math.round((cols * (b - a)) / (to - from) / 2)), (data) => {
      this.chart = { data, from: a, to: b };
    });
    const open = lanes.filter((l) => l.open).map((l) => l.thread);
    if (open.length > 0) {
      this.ask("calls", () => this.app.store.calls(open, a, b, 1.5 * res), (calls) => {
        this.calls = calls;
        this.callsOf = index(calls.thread);
        this.layout();
      });
    }
  }

  private ask<T>(name: string, question: () => Promise<T>, then: (answer: T) => void): void {
    this.waiting++;
    this.app.ask(name, () => question().finally(() => this.waiting--), (answer) => {
      then(answer);
      this.draw(); // which asks again where it has moved on
    });
  }

  private draw(): void {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.render();
      this.fetch();
    });
  }

  private render(): void {
    if (!this.element.isConnected || this.canvas.width === 0) return;
    if (this.painted !== dark()) { // it may have changed while another view was shown
      this.painted = dark();
      this.strips.forget();
      this.curves.forget();
    }
    const busy = this.drawLanes();
    drawCharts(this, this.charts, this.chart, this.hover ? this.hover.x : -1, this.curves, this.moving, busy);
    this.drawPicked(this.charts.g, this.charts.height);
  }

  /** drawLanes says whether it had to paint the lanes anew. */
  private drawLanes(): boolean {
    const { g } = this.canvas;
    const { from, to, threads, find } = this.app.shared.state;
    const top = this.scroller.scrollTop;
    const lanes = this.shown();
    const d = this.canvas.density;
    const plot = this.plotWidth();
    g.clearRect(0, 0, this.canvas.width, this.canvas.height);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.textAlign = "left";
    const { step, first } = steps(from, to, plot / 90);
    g.fillStyle = ink("grid");
    for (let t = first; t <= to; t += step) g.fillRect(this.x(t), 0, 1, this.canvas.height);

    const which = `${plot * d}|${lanes.map((l) => l.thread).join(".")}`;
    const stale = !this.strips.serves(from, to, this.rows, which, this.moving);
    if (stale) {
      this.strips.begin(Math.round(plot * d), lanes.length, d, !this.rows || !this.app.store.about.done);
      lanes.forEach((l, i) => {
        const r = this.rowsOf.get(l.thread) ?? [0, 0];
        const t = this.app.store.about.threads[l.thread];
        this.strips.paint(i, this.rows, r[0], r[1], from, to, t.start, t.end);
      });
      this.strips.done(from, to, this.rows, which);
    }
    lanes.forEach((l, i) => {
      const y = l.y - top;
      this.strips.show(g, i, this.gutter, y, plot, from, to);
      label(this, g, l, y, threads === null || threads.includes(l.thread));
      const needle = finder(find);
      const r = this.rowsOf.get(l.thread);
      if (this.rows && r) pieceTexts(this, g, this.rows, r, y, needle);
      const c = this.callsOf.get(l.thread);
      if (l.open && this.calls && c) drawCalls(this, this.canvas, this.calls, c, l, y + stripHeight + 3, needle);
    });
    if (this.rows && this.app.shared.option("arrows", "1") !== "0") {
      drawArrows(this, this.canvas, this.rows, new Map(lanes.map((l) => [l.thread, l.y - top + stripHeight / 2])), this.selected, this.hover && this.hover.y >= 0 ? (this.laneAt(this.hover.y)?.thread ?? -1) : -1);
    }
    this.drawPicked(g, this.canvas.height);
    if (this.hover) {
      g.fillStyle = ink("soft");
      g.globalAlpha = 0.5;
      if (this.hover.x > this.gutter) g.fillRect(this.hover.x, 0, 1, this.canvas.height);
      g.globalAlpha = 1;
    }
    if (this.selected) {
      const l = this.lanes.find((x) => x.thread === this.selected!.thread);
      if (l) {
        const a = Math.max(this.gutter, this.x(this.selected.start));
        const b = Math.min(this.gutter + plot, this.x(this.selected.end));
        g.strokeStyle = ink("text");
        g.lineWidth = 2;
        if (b >= a) g.strokeRect(a - 1, l.y - top - 1, Math.max(2, b - a + 2), stripHeight + 2);
      }
    }
    return stale;
  }

  private drawPicked(g: CanvasRenderingContext2D, height: number): void {
    const p = this.brush ?? this.app.shared.state.picked;
    if (!p) return;
    const a = Math.max(this.gutter, this.x(Math.min(...p)));
    const b = Math.min(this.gutter + this.plotWidth(), this.x(Math.max(...p)));
    g.fillStyle = ink("shade");
    g.globalAlpha = 0.35;
    if (a > this.gutter) g.fillRect(this.gutter, 0, a - this.gutter, height);
    g.fillRect(b, 0, Math.max(0, this.gutter + this.plotWidth() - b), height);
    g.globalAlpha = 1;
    g.fillStyle = ink("accent");
    g.fillRect(a - 1, 0, 2, height);
    g.fillRect(b - 1, 0, 2, height);
  }

  private laneAt(y: number): Lane | undefined {
    const at = y + this.scroller.scrollTop;
    return this.lanes.find((l) => at >= l.y - gap / 2 && at < l.y + stripHeight + gap / 2 + l.depth * rowHeight + (l.depth > 0 ? 4 : 0));
  }

  /** hit finds the lane and piece under a point of the canvas. */
  private hit(x: number, y: number): { lane: Lane; row: number; call: number } | null {
    const at = y + this.scroller.scrollTop;
    const lane = this.laneAt(y);
    if (!lane) return null;
    const out = { lane, row: -1, call: -1 };
    if (x < this.gutter) return out;
    const t = this.time(x);
    const slack = (this.time(x + 2) - t) | 0;
    if (at < lane.y + stripHeight + gap / 2) {
      const r = this.rowsOf.get(lane.thread);
      if (r && this.rows) {
        let best = -1;
        for (let i = r[0]; i < r[1]; i++) {
          const end = this.rows.start[i] + this.rows.value[i];
          if (this.rows.start[i] <= t + slack && end >= t - slack) {
            // within a column's width, what waited longest is what is looked for
            if (best < 0 || this.rows.value[i] > this.rows.value[best]) best = i;
          }
        }
        out.row = best;
      }
      return out;
    }
    const depth = Math.floor((at - lane.y - stripHeight - 3) / rowHeight) + lane.skip;
    const r = this.callsOf.get(lane.thread);
    if (r && this.calls) {
      for (let i = r[0]; i < r[1]; i++) {
        if (this.calls.depth[i] === depth && this.calls.start[i] <= t && this.calls.start[i] + this.calls.dur[i] >= t) out.call = i;
      }
    }
    return out;
  }

  private pointer(canvas: HTMLCanvasElement, lanes: boolean): void {
    let down: { x: number; y: number; pan: boolean; from: number; to: number } | null = null;
    const place = (e: MouseEvent): { x: number; y: number } => {
      const b = canvas.getBoundingClientRect();
      return { x: e.clientX - b.left, y: e.clientY - b.top };
    };
    canvas.addEventListener("pointerdown", (e) => {
      if (e.button > 1) return;
      const { x, y } = place(e);
      const s = this.app.shared.state;
      down = { x, y, pan: e.shiftKey || e.button === 1 || (!lanes && y > 3 * chartHeight), from: s.from, to: s.to };
      canvas.setPointerCapture(e.pointerId);
      e.preventDefault();
      this.scroller.focus({ preventScroll: true });
    });
    canvas.addEventListener("pointermove", (e) => {
      const p = place(e);
      this.hover = lanes ? p : { x: p.x, y: -1 };
      if (down && Math.abs(p.x - down.x) > 3 && down.x > this.gutter) {
        if (down.pan) {
          const per = (down.to - down.from) / this.plotWidth();
          this.app.shared.window(down.from - (p.x - down.x) * per, down.to - (p.x - down.x) * per);
        } else {
          this.brush = [this.time(down.x), this.time(Math.max(this.gutter, Math.min(p.x, this.canvas.width - 8)))];
        }
      }
      this.showTip(lanes && !down ? p : null, e);
      this.draw();
    });
    canvas.addEventListener("pointerleave", () => {
      this.hover = null;
      this.tip.hidden = true;
      this.draw();
    });
    canvas.addEventListener("pointerup", (e) => {
      const p = place(e);
      if (this.brush) {
        const [a, b] = [Math.min(...this.brush), Math.max(...this.brush)];
        this.brush = null;
        this.app.shared.set({ picked: [Math.max(0, Math.floor(a)), Math.min(this.app.store.about.length, Math.ceil(b))] });
      } else if (down && !down.pan && lanes && Math.abs(p.x - down.x) <= 3) {
        this.click(p.x, p.y, e);
      }
      down = null;
      this.draw();
    });
    canvas.addEventListener("dblclick", (e) => {
      const { x, y } = place(e);
      const hit = lanes ? this.hit(x, y) : null;
      if (hit && hit.row >= 0 && this.rows) {
        const [a, n] = [this.rows.start[hit.row], this.rows.value[hit.row]];
        this.app.shared.zoomTo(a - n * 0.3, a + n * 1.3);
      } else if (x > this.gutter) {
        const w = this.app.shared.state.to - this.app.shared.state.from;
        this.app.shared.zoomTo(this.time(x) - w / 8, this.time(x) + w / 8);
      }
    });
    canvas.addEventListener(
      "wheel",
      (e) => {
        const { x } = place(e);
        const s = this.app.shared.state;
        if (e.ctrlKey || e.metaKey || !lanes) {
          e.preventDefault();
          this.app.shared.zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY)) / 140), this.time(Math.max(this.gutter, x)));
        } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
          e.preventDefault();
          const move = ((e.deltaX || e.deltaY) / this.plotWidth()) * (s.to - s.from);
          this.app.shared.window(s.from + move, s.to + move);
        }
      },
      { passive: false },
    );
  }

  private click(x: number, y: number, e: PointerEvent): void {
    const hit = this.hit(x, y);
    if (!hit) return;
    const { thread } = hit.lane;
    if (x < 20) {
      this.toggle(thread);
    } else if (x < this.gutter) {
      this.selectThread(thread, e.ctrlKey || e.metaKey || e.shiftKey);
    } else if (hit.row >= 0 && this.rows) {
      this.selected = { thread, start: this.rows.start[hit.row], end: this.rows.start[hit.row] + this.rows.value[hit.row] };
      this.app.detail(aboutPiece(this.app, this.rows, hit.row));
    } else if (hit.call >= 0 && this.calls) {
      const name = this.app.store.places.frames[this.calls.frame[hit.call]].n;
      this.app.shared.set({ find: exactly(name) });
    }
  }

  private toggle(thread: number): void {
    const open = this.opened(order(this.app));
    if (!open.delete(thread)) open.add(thread);
    this.app.shared.choose("open", [...open].join("."));
  }

  private selectThread(thread: number, more: boolean): void {
    const now = this.app.shared.state.threads;
    if (!more) this.app.shared.set({ threads: now?.length === 1 && now[0] === thread ? null : [thread] });
    else {
      const next = now?.includes(thread) ? now.filter((t) => t !== thread) : [...(now ?? []), thread];
      this.app.shared.set({ threads: next.length > 0 ? next.sort((a, b) => a - b) : null });
    }
  }

  private showTip(p: { x: number; y: number } | null, e: PointerEvent): void {
    const hit = p ? this.hit(p.x, p.y) : null;
    let lines: string[] = [];
    if (hit && p!.x < this.gutter) {
      const t = this.app.store.about.threads[hit.lane.thread];
      const proc = this.app.store.about.processes[t.proc];
      lines = [`${t.name} ${t.tid}`, proc ? `${proc.name} ${proc.pid}` : "", "click: select · ▸: show its calls"];
      t.total.forEach((ns, s) => ns > 0 && lines.push(`${duration(ns)} ${looks[s].brief}`));
      if (t.ready > 0) lines.push(`runnable without a CPU: ${duration(t.ready)} in all, by the kernel’s count`);
    } else if (hit && hit.row >= 0 && this.rows) {
      lines = tipOf(this.app, this.rows, hit.row);
    } else if (hit && hit.call >= 0 && this.calls) {
      const f = this.app.store.places.frames[this.calls.frame[hit.call]];
      const n = this.calls.count[hit.call];
      lines = [f.n.slice(0, 200), n > 0 ? `${n} calls in ${duration(this.calls.dur[hit.call])}, mostly this` : duration(this.calls.dur[hit.call]), f.m ?? ""];
    }
    lines = lines.filter(Boolean);
    this.tip.hidden = lines.length === 0;
    if (lines.length === 0) return;
    this.tip.replaceChildren(...lines.map((t, i) => h("div", { class: i === 0 ? "strong" : undefined }, t)));
    const box = this.element.getBoundingClientRect();
    const x = Math.min(e.clientX - box.left + 14, box.width - 330);
    const y = e.clientY - box.top + 16;
    this.tip.style.left = `${Math.max(4, x)}px`;
    this.tip.style.top = `${y + 120 > box.height ? y - 110 : y}px`;
  }

  key(e: KeyboardEvent): boolean {
    const s = this.app.shared.state;
    const w = s.to - s.from;
    const mid = this.hover && this.hover.x > this.gutter ? this.time(this.hover.x) : (s.from + s.to) / 2;
    switch (e.key) {
      case "w": case "+": case "=": this.app.shared.zoom(0.7, mid); return true;
      case "s": case "-": this.app.shared.zoom(1 / 0.7, mid); return true;
      case "a": case "ArrowLeft": this.app.shared.window(s.from - w * 0.15, s.to - w * 0.15); return true;
      case "d": case "ArrowRight": this.app.shared.window(s.from + w * 0.15, s.to + w * 0.15); return true;
      case "ArrowDown": case "ArrowUp": this.step(e.key === "ArrowDown" ? 1 : -1); return true;
      case "Enter": if (s.threads?.length === 1) this.toggle(s.threads[0]); return true;
      case "n": case "p": this.walk(e.key === "n" ? 1 : -1); return true;
      case "r": this.app.shared.choose("arrows", this.app.shared.option("arrows", "1") === "0" ? null : "0"); return true;
    }
    return false;
  }

  /** step selects the next thread. */
  private step(by: number): void {
    if (this.lanes.length === 0) return;
    const now = this.app.shared.state.threads;
    const at = now?.length === 1 ? this.lanes.findIndex((l) => l.thread === now[0]) : by > 0 ? -1 : this.lanes.length;
    const lane = this.lanes[Math.max(0, Math.min(this.lanes.length - 1, at + by))];
    this.app.shared.set({ threads: [lane.thread] });
    this.reveal(lane.thread);
  }

  reveal(thread: number): void {
    const lane = this.lanes.find((l) => l.thread === thread);
    if (!lane) return;
    const top = this.scroller.scrollTop;
    if (lane.y < top) this.scroller.scrollTop = lane.y - gap;
    else if (lane.y + stripHeight + gap > top + this.canvas.height) this.scroller.scrollTop = lane.y + stripHeight + gap - this.canvas.height;
  }

  /** walk goes to the next wait of the selected thread (of the first lane where none is selected). */
  private walk(by: number): void {
    const thread = this.app.shared.state.threads?.[0] ?? this.selected?.thread ?? this.lanes[0]?.thread;
    const r = thread === undefined ? undefined : this.rowsOf.get(thread);
    if (!r || !this.rows) return;
    const rows = this.rows;
    const list: number[] = [];
    for (let i = r[0]; i < r[1]; i++) if (rows.state[i] > off && rows.state[i] !== ready && rows.count[i] === 1) list.push(i);
    if (list.length === 0) return;
    const now = this.selected?.thread === thread ? list.findIndex((i) => rows.start[i] === this.selected!.start) : -1;
    const i = list[(now + by + list.length) % list.length];
    this.selected = { thread, start: rows.start[i], end: rows.start[i] + rows.value[i] };
    const { from, to } = this.app.shared.state;
    if (this.selected.start < from || this.selected.end > to) {
      this.app.shared.window(this.selected.start - (to - from) / 2, this.selected.start + (to - from) / 2);
    }
    this.app.detail(aboutPiece(this.app, rows, i));
    this.draw();
  }
}
