// What the user looks at, shared by all views and kept in the address: the view, the visible stretch of time, the
// selected stretch and threads, and each view's own choices.

export type ViewName = "timeline" | "flame" | "blocks" | "slow" | "trust";

export interface State {
  view: ViewName;
  from: number; // visible, ns
  to: number;
  picked: [number, number] | null; // selected time; null: what is visible
  threads: number[] | null; // selected; null: all
  find: string;
  /** Choices of single views, by name. */
  options: Record<string, string>;
}

const views: ViewName[] = ["timeline", "flame", "blocks", "slow", "trust"];

export class Shared {
  readonly state: State;
  private listeners: ((what: Set<keyof State>) => void)[] = [];
  private changed = new Set<keyof State>();
  private scheduled = false;
  private writing = 0;
  private back: [number, number][] = [];

  constructor(readonly length: () => number, private threadCount: () => number) {
    this.state = { view: "timeline", from: 0, to: length(), picked: null, threads: null, find: "", options: {} };
    this.read();
    addEventListener("hashchange", () => {
      if (location.hash === this.hash()) return;
      this.read();
      for (const k of Object.keys(this.state) as (keyof State)[]) this.changed.add(k);
      this.tell();
    });
  }

  on(f: (what: Set<keyof State>) => void): void {
    this.listeners.push(f);
  }

  set(change: Partial<State>): void {
    for (const [k, v] of Object.entries(change)) {
      if (JSON.stringify(this.state[k as keyof State]) === JSON.stringify(v)) continue;
      (this.state as unknown as Record<string, unknown>)[k] = v;
      this.changed.add(k as keyof State);
    }
    if (this.changed.size > 0) this.tell();
  }

  option(name: string, otherwise: string): string {
    return this.state.options[name] ?? otherwise;
  }

  choose(name: string, value: string | null): void {
    const options = { ...this.state.options };
    if (value === null) delete options[name];
    else options[name] = value;
    this.set({ options });
  }

  /** window moves the visible stretch, kept within the recording. */
  window(from: number, to: number): void {
    const all = this.length();
    const width = Math.max(Math.min(50, all), Math.min(all, to - from)); // 50 ns: nothing is finer
    const at = Math.max(0, Math.min(all - width, from));
    this.set({ from: at, to: at + width });
  }

  /** zoomTo is window with a way back. */
  zoomTo(from: number, to: number): void {
    this.back.push([this.state.from, this.state.to]);
    if (this.back.length > 100) this.back.shift();
    this.window(from, to);
  }

  zoomBack(): void {
    const b = this.back.pop();
    if (b) this.window(...b);
    else this.window(0, this.length());
  }

  zoom(factor: number, at: number): void {
    const { from, to } = this.state;
    this.window(at - (at - from) * factor, at + (to - at) * factor);
  }

  /** range is the selection of time. */
  range(): [number, number] {
    const { picked, from, to } = this.state;
    return picked ?? [from, to];
  }

  /** A string that is equal while the selection is. */
  key(): string {
    return `${this.range().join()}|${this.state.threads?.join() ?? ""}`;
  }

  private tell(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      const what = this.changed;
      this.changed = new Set();
      for (const f of this.listeners) f(what);
      clearTimeout(this.writing);
      this.writing = window.setTimeout(() => history.replaceState(null, "", this.hash()), 150);
    });
  }

  hash(): string {
    const s = this.state;
    const q = new URLSearchParams();
    q.set("v", s.view);
    if (s.from > 0 || s.to < this.length()) q.set("w", `${Math.round(s.from)}-${Math.round(s.to)}`);
    if (s.picked) q.set("s", s.picked.map(Math.round).join("-"));
    if (s.threads) q.set("t", s.threads.join("."));
    if (s.find) q.set("q", s.find);
    for (const [k, v] of Object.entries(s.options)) q.set(`o.${k}`, v);
    return `#${q}`;
  }

  private read(): void {
    const q = new URLSearchParams(location.hash.slice(1));
    const s = this.state;
    const all = this.length();
    const pair = (v: string | null): [number, number] | null => {
      const m = /^(\d+)-(\d+)$/.exec(v ?? "");
      const a = m ? Math.min(+m[1], all) : 0;
      const b = m ? Math.min(+m[2], all) : 0;
      return m && b > a ? [a, b] : null;
    };
    const v = q.get("v") as ViewName;
    s.view = views.includes(v) ? v : "timeline";
    [s.from, s.to] = pair(q.get("w")) ?? [0, all];
    s.picked = pair(q.get("s"));
    const t = (q.get("t") ?? "").split(".").filter((x) => /^\d+$/.test(x)).map(Number).filter((x) => x < this.threadCount());
    s.threads = t.length > 0 ? t : null;
    s.find = q.get("q") ?? "";
    s.options = {};
    for (const [k, x] of q) if (k.startsWith("o.")) s.options[k.slice(2)] = x;
  }
}
