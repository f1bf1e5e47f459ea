// How far to trust it: what of each thread's time is known and how, what was lost, what could not be recorded, and
// what recording cost.

import type { App, View } from "./app.js";
import { ready } from "./colours.js";
import { fill, h, table } from "./dom.js";
import { bytes, count, duration, percent, whole } from "./format.js";

const most = 500;

export class Trust implements View {
  readonly element = h("section", { class: "trust", tabindex: "0", "aria-label": "How far to trust it" });

  constructor(private app: App) {}

  update(): void {
    const a = this.app.store.about;
    const d = a.doubt;
    const st = a.stats;
    const sum = (f: (t: (typeof a.threads)[number]) => number): number => a.threads.reduce((n, t) => n + f(t), 0);
    const [exact, sampled, unknown] = [sum((t) => t.exact), sum((t) => t.sampled), sum((t) => t.unknown)];
    const all = exact + sampled + unknown;
    const lost = Math.max(st.Lost, d.lost);
    const card = (bad: boolean, head: string, ...lines: (string | false)[]): HTMLElement =>
      h("div", { class: `card${bad ? " bad" : ""}` }, h("b", {}, head), ...lines.filter((x) => x !== false).map((x) => h("p", {}, x)));
    const overhead = st.TargetCPU > 0 ? percent(st.AgentCPU + st.CollectorCPU + st.SamplerCPU, st.TargetCPU) : "";
    fill(
      this.element,
      h("h2", {}, "How far to trust it"),
      h("div", { class: "cards" },
        card(false, `${percent(exact, all)} of threads’ time is exact`, `${percent(sampled, all)} sampled, ${percent(unknown, all)} unknown, of ${duration(all)}.`,
          "Exact: in a recorded wait or call. Sampled: between stacks that lie close together."),
        card(lost > 0 || !st.Complete, lost > 0 ? `${count(lost)} records lost, ${percent(lost, lost + st.Records)}` : st.Complete ? "Nothing was lost" : "The recording was not closed",
          st.Overwritten > 0 && `${count(st.Overwritten)} events were overwritten before they could be stored.`,
          st.Broken > 0 && `${count(st.Broken)} broken records were left out.`, !st.Complete && "Its end is missing.",
          st.SubbufsLost > 0 && `${count(st.SubbufsLost)} buffers were given up.`,
          st.ThreadsUnslotted > 0 && `${count(st.ThreadsUnslotted)} threads did not fit.`, `${count(st.Events)} events kept.`),
        card(d.cut + d.guessed + d.omitted > d.stacks / 20, `${count(d.stacks)} stacks`, `${percent(d.cut, d.stacks)} cut at the root, ${percent(d.guessed, d.stacks)} with a guessed frame, ${percent(d.omitted, d.stacks)} shortened, ${percent(d.noStack, d.stacks)} missing.`),
        card(false, `${count(d.samples)} CPU samples`, `${a.freq} for each second of CPU time.`, d.sharedNs > 0 && `${duration(d.sharedNs)} of CPU time was noticed late, and is placed by other samples of the same work: its place in time is a guess, the sums are right.`,
          d.lateNs > 0 && `${duration(d.lateNs)} of CPU time was sampled late, at the next call, and stands there.`,
          d.unplaced > 0 && `${duration(d.unplaced)} of CPU time has no room in its thread’s time: it is in flame graphs and sums, and in no lane.`,
          st.Ticks > 0 && `${percent(st.TicksMissed, st.Ticks + st.TicksMissed)} of the sampler’s ticks were missed.`, st.SignalsSent > 0 && `${count(st.SignalsSent)} signals sent, ${count(st.SignalsFailed)} failed, ${count(st.SignalsStuck)} never answered.`),
        card(false, overhead ? `Recording cost ${overhead} of the program’s CPU time` : "What recording cost", `agent ${duration(st.AgentCPU)}, collector ${duration(st.CollectorCPU)}, sampler ${duration(st.SamplerCPU)}, program ${duration(st.TargetCPU)}.`, "The agent’s time is part of the program’s; the other two run next to it."),
        card(false, "What is not recorded", `Waits for locks shorter than ${duration(a.lockNs)} and calls shorter than ${duration(a.callNs)} count as running or “ready / short waits”.`,
          this.ready(),
          a.period > 1 && `One allocation is sampled each ${bytes(a.period)}; sums are estimates without bias.`,
          a.resolution > 0 && `What is shorter than ${duration(a.resolution)} is added up: sums are right, its order is not kept.`,
          d.displaced > 0 && `${duration(d.displaced)} have no place, because there are too many of them.`,
          d.thinSpans > 0 && `Calls too short to be drawn: ${count(d.thinSpans)}.`, d.clipped > 0 && `Intervals that overlapped others and were cut: ${count(d.clipped)}.`),
      ),
      this.notes(),
      h("h2", {}, "Threads"),
      a.threads.length > most && h("p", { class: "soft" }, `the ${most} busiest of ${count(a.threads.length)}`),
      this.threads(),
      h("h2", {}, "The recording"),
      table(["what", "value"], [
        ["command", whole(a.command)], ["started", a.started], ["length", duration(a.length)],
        ["ended", a.signal > 0 ? `by signal ${a.signal}` : a.status >= 0 ? `with status ${a.status}` : "not known"],
        ["host", `${a.host}, ${a.kernel}, ${a.arch}, ${a.cpus} CPUs`], ["recorded", (a.features ?? []).join(", ")], ["hbtrace", a.version],
      ], [], "The recording"),
    );
  }

  /** ready says what is known of time in which threads could have run. */
  private ready(): string {
    const { threads } = this.app.store.about;
    if (threads.some((t) => t.total[ready] > 0)) return "Time runnable without a CPU, is the kernel’s account of each switch, and is drawn.";
    const ns = threads.reduce((n, t) => n + Math.max(0, t.ready), 0);
    return threads.some((t) => t.ready >= 0)
      ? `Threads were runnable without a CPU, for ${duration(ns)} together: the kernel’s count, read up to once a second. When that was is not known, so it is drawn nowhere; record with --kernel to see it.`
      : "For how long threads were runnable without a CPU, is not known.";
  }

  private notes(): HTMLElement | null {
    const a = this.app.store.about;
    const list = [...a.notes, ...a.processes.flatMap((p) => p.doubts.map((x) => `${p.name} ${p.pid}: ${x}`))];
    if (a.failed) list.unshift(a.failed);
    return list.length === 0 ? null : h("div", {}, h("h2", {}, "What could not be recorded"), h("ul", {}, ...list.slice(0, 200).map((n) => h("li", {}, whole(n)))));
  }

  private threads(): HTMLElement {
    const a = this.app.store.about;
    const order = [...a.threads.keys()].sort((x, y) => a.threads[y].total[1] - a.threads[x].total[1] || x - y).slice(0, most);
    return table(
      ["thread", "tid", "lived", "exact", "sampled", "unknown", "share", "CPU", "runnable", "samples", "stacks", "lost"],
      order.map((i) => {
        const t = a.threads[i];
        const all = t.exact + t.sampled + t.unknown;
        const part = (ns: number, kind: string): HTMLElement => h("i", { class: kind, css: { width: `${(100 * ns) / Math.max(1, all)}%` } });
        return [
          t.name, t.tid, duration(t.end - t.start), percent(t.exact, all), percent(t.sampled, all), percent(t.unknown, all),
          h("div", { class: "bar cover", role: "presentation" }, part(t.exact, "exact"), part(t.sampled, "sampled"), part(t.unknown, "hatch")),
          t.cpu < 0 ? "–" : duration(t.cpu), t.ready < 0 ? "–" : duration(t.ready), count(t.samples), count(t.stacks), count(t.lost),
        ];
      }),
      [1, 2, 3, 4, 5, 7, 8, 9, 10, 11],
      "What is known of each thread’s time",
    );
  }
}
