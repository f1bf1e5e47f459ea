// The strip at the top: the whole recording, and which stretch of it is visible.

import type { App } from "./app.js";
import { ink, locked, looks, running } from "./colours.js";
import { Canvas } from "./dom.js";
import { duration } from "./format.js";
import type { Chart } from "./store.js";

const height = 34;

export class Overview {
  private canvas = new Canvas("The whole recording: CPU use above, waiting for locks below");
  readonly element = this.canvas.element;
  private chart: Chart | null = null;
  private asked = "";

  constructor(private app: App) {
    this.element.className = "overview";
    let grab: { x: number; from: number; to: number; inside: boolean } | null = null;
    const at = (e: PointerEvent): number => (e.offsetX / this.canvas.width) * app.store.about.length;
    this.element.addEventListener("pointerdown", (e) => {
      const { from, to } = app.shared.state;
      const t = at(e);
      const whole = to - from > app.store.about.length * 0.98;
      grab = { x: t, from, to, inside: t >= from && t <= to && !whole };
      this.element.setPointerCapture(e.pointerId);
    });
    this.element.addEventListener("pointermove", (e) => {
      if (!grab) return;
      const t = at(e);
      if (grab.inside) app.shared.window(grab.from + t - grab.x, grab.to + t - grab.x);
      else if (Math.abs(t - grab.x) > app.store.about.length / 400) app.shared.window(Math.min(t, grab.x), Math.max(t, grab.x));
    });
    this.element.addEventListener("pointerup", (e) => {
      if (grab && !grab.inside && Math.abs(at(e) - grab.x) <= app.store.about.length / 400) {
        const w = grab.to - grab.from;
        app.shared.window(grab.x - w / 2, grab.x + w / 2);
      }
      grab = null;
    });
    this.element.addEventListener("dblclick", () => app.shared.window(0, app.store.about.length));
  }

  update(): void {
    const width = this.element.parentElement?.clientWidth ?? 0;
    if (!this.canvas.fit(width, height)) return;
    const { about } = this.app.store;
    const key = `${width}|${about.read}|${about.length}|${this.app.shared.state.threads?.join() ?? ""}`;
    if (key !== this.asked && width > 0) {
      this.asked = key;
      this.app.ask("overview", () => this.app.store.chart(this.app.shared.state.threads, 0, about.length, Math.max(8, Math.floor(width / 2))), (c) => {
        this.chart = c;
        this.draw();
      });
    }
    this.draw();
  }

  private draw(): void {
    const { g, width } = this.canvas;
    const { from, to, picked } = this.app.shared.state;
    const all = Math.max(1, this.app.store.about.length);
    g.clearRect(0, 0, width, height);
    g.fillStyle = ink("lane");
    g.fillRect(0, 0, width, height);
    const c = this.chart;
    if (c) {
      const curves: [Float64Array, string, number, number][] = [
        [c.cpu, looks[running].fill, height / 2, -1],
        [c.lock, looks[locked].fill, height / 2 + 1, 1],
      ];
      for (const [of, colour, base, sign] of curves) {
        let most = 0;
        for (const v of of) most = Math.max(most, v);
        g.fillStyle = colour;
        const w = width / of.length;
        for (let i = 0; i < of.length; i++) {
          const t = most > 0 ? (of[i] / most) * (height / 2 - 2) : 0;
          if (t > 0.2) g.fillRect(i * w, sign < 0 ? base - t : base, w + 0.3, t);
        }
      }
    }
    g.fillStyle = ink("shade");
    g.globalAlpha = 0.55;
    g.fillRect(0, 0, (from / all) * width, height);
    g.fillRect((to / all) * width, 0, width, height);
    g.globalAlpha = 1;
    g.strokeStyle = ink("text");
    g.lineWidth = 1.5;
    g.strokeRect((from / all) * width + 0.75, 0.75, Math.max(2, ((to - from) / all) * width - 1.5), height - 1.5);
    g.fillStyle = ink("accent");
    for (const m of this.app.store.about.marks) g.fillRect(Math.min(width - 1, (m.at / all) * width), 0, 1, height);
    if (picked) {
      g.fillStyle = ink("accent");
      g.fillRect((picked[0] / all) * width, height - 4, Math.max(2, ((picked[1] - picked[0]) / all) * width), 4);
    }
    const marks = this.app.store.about.marks.map((m) => `\n+${duration(m.at)}: ${m.text}`).join("");
    this.element.title = `visible: ${duration(to - from)} from +${duration(from)}${marks}`;
  }
}
