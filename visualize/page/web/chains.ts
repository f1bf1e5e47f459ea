// What waits came down to: chains from a thread that waits, by those it waits for, to what the last of them did; and
// what holders did in the waits of one edge. Of the whole recording they are what `hbtrace report --locks` tells.

import type { App } from "./app.js";
import { looks } from "./colours.js";
import { h } from "./dom.js";
import { count, duration, percent, short, whole } from "./format.js";
import { stackList } from "./piece.js";
import type { Activity, Chain, Chains, Holding, Link, Rows } from "./store.js";

const mostShown = 12;
const leastShare = 1 / 200; // of all: what is less is added up

/** said is what somebody did, in words. */
export function said(app: App, a: Activity): string {
  const place = a.in ? short(a.in) : "";
  switch (a.act) {
    case "call": return place;
    case "waiting": return `waiting for ${app.store.places.object(a.object ?? 0) || "something"}`;
    case "running": case "runnable": case "off-cpu": return place ? `${a.act} in ${place}` : a.act;
    case "unseen": return place ? `not sampled, released in ${place}` : "not sampled";
    case "unknown": return "by nobody known";
    case "hand-over": return "released already";
    case "timed-out": return "until the time-out";
    case "cycle": return "waiting in a circle";
    case "not-followed": return "not followed";
  }
  return a.act;
}

function dot(a: Activity): HTMLElement {
  return h("i", { class: "dot", css: { background: looks[a.state].css } });
}

function person(app: App, thread: number): string {
  return thread > 0 ? app.threadName(thread - 1) : "nobody known";
}

/** matches says whether a chain is about what was picked in the graph: o<object>, b<blocker>, w<waiter>. */
function matches(c: Chain, edge: string): boolean {
  return edge === "" || edge.split(",").every((p) => {
    const id = Number(p.slice(1));
    if (p[0] === "o") return c.links[0].object === id;
    if (p[0] === "w") return c.links[0].thread - 1 === id;
    if (p[0] === "b") return (c.links[1]?.thread ?? c.end.thread ?? 0) - 1 === id;
    return true;
  });
}

/** deadlockList warns of threads that wait for each other to the end. */
export function deadlockList(app: App, found: Chains): HTMLElement | null {
  if (found.deadlocks.length === 0 && found.inversions.length === 0) return null;
  const { places } = app.store;
  const name = (object: number): string => places.object(object) || "a lock";
  return h("div", { class: "deadlocks" },
    ...found.deadlocks.map((d) => h("div", { class: "card bad" },
      h("b", {}, `Deadlock: ${d.threads.length} threads, for ${duration(d.until - d.since)}, to the end`),
      ...d.threads.map((l, i) => h("p", {},
        `${person(app, l.thread)} in ${where(app, l)} waits for ${name(l.object)}, which ${person(app, d.threads[(i + 1) % d.threads.length].thread)} has`)))),
    ...found.inversions.slice(0, 20).map((orders) => h("div", { class: "card bad" },
      h("b", {}, "Locks taken in contradicting orders: they can deadlock"),
      ...orders.map((o) => h("p", {},
        `${person(app, o.thread)} waited for ${name(o.inner)} while it had ${name(o.outer)}, ${count(o.count)} ×`)))));
}

function where(app: App, l: Link): string {
  return short(l.in || app.store.places.caller(l.site) || app.store.places.leaf(l.site)) || "a place that is not known";
}

/** chainList shows the heaviest chains: those of waits for locks, or of all. */
export function chainList(app: App, found: Chains, onlyLocks: boolean, edge: string): HTMLElement | null {
  const list = found.chains.filter((c) => (!onlyLocks || c.lock) && matches(c, edge));
  if (list.length === 0) return null;
  const rest = edge === "" ? (onlyLocks ? found.rest[0].ns : found.rest[0].ns + found.rest[1].ns) : 0;
  const all = list.reduce((n, c) => n + c.ns, rest);
  const shown = list.slice(0, mostShown).filter((c, i) => i === 0 || c.ns >= all * leastShare);
  const left = all - shown.reduce((n, c) => n + c.ns, 0);
  return h("div", { class: "chains" },
    h("h2", {}, "What the waits led to"),
    h("p", { class: "soft" }, "Each line: the waiter, whom it waited for, whom that thread waited for in turn, and what the last one did."),
    h("ol", {}, ...shown.map((c) => row(app, c, all))),
    left > 0 && h("p", { class: "soft" }, `${duration(left)} in chains that are lighter`),
    found.resolution > 0 && h("p", { class: "soft" }, `parts of waits shorter than ${duration(found.resolution)} are added up: at the selection’s edges their share is taken, and counts are estimates`),
    found.estimated > 0 && h("p", { class: "soft" }, `the chains of ${count(found.estimated)} waits of the whole recording are estimates: they are followed at some of their instants`),
    found.unfollowed > 0 && h("p", { class: "soft" }, `${count(found.unfollowed)} waits or links of the whole recording were too many to follow`));
}

function row(app: App, c: Chain, all: number): HTMLElement {
  const end = said(app, c.end);
  const steps = c.links.map((l, i) => h("span", { class: "step" }, h("b", {}, person(app, l.thread)), ` in ${where(app, l)}`,
    i === 0 && l.object > 0 ? h("span", { class: "soft" }, ` for ${whole(app.store.places.object(l.object))}`) : null));
  const by = c.end.thread ?? 0;
  steps.push(h("span", { class: "step" }, by > 0 ? h("b", {}, `${person(app, by)} `) : null, dot(c.end), end));
  const body = h("div", { class: "pair" });
  const line = h("summary", { title: "Show the stacks" },
    h("b", { class: "num" }, duration(c.ns)), h("span", { class: "num soft" }, percent(c.ns, all)), h("span", { class: "steps" }, ...steps));
  const item = h("details", { on: { toggle: () => item.open && body.childElementCount === 0 && body.append(...stacks(app, c, end)) } }, line,
    h("p", { class: "soft" }, `part of ${count(c.count)} waits, at most ${duration(c.longest)} in one`), body);
  return h("li", { "data-ns": c.ns }, item);
}

function stacks(app: App, c: Chain, end: string): HTMLElement[] {
  const out = c.links.map((l) => h("div", {}, h("h3", {}, `${person(app, l.thread)} waited${l.object > 0 ? ` for ${whole(app.store.places.object(l.object))}` : ""}`), stackList(app, l.site, 8)));
  if (c.end.site) out.push(h("div", {}, h("h3", {}, `${c.end.thread ? `${person(app, c.end.thread)}: ` : ""}${end}`), stackList(app, c.end.site, 8)));
  return out;
}

/** holdingOf finds what is known of the holder in row i's waits. */
export function holdingOf(found: Chains | null, rows: Rows, i: number): Holding | undefined {
  return found?.holding.find((x) => x.thread === rows.thread[i] + 1 && x.site === rows.site[i] && x.object === rows.object[i] &&
    x.owner === rows.owner[i] && x.releaser === rows.releaser[i]);
}

/** doingList says what a holder did during waits. */
export function doingList(app: App, x: Holding): HTMLElement {
  return h("ul", { class: "meanwhile" }, ...x.doing.map((d) =>
    h("li", {}, dot(d), h("b", {}, percent(d.ns ?? 0, x.ns)), ` ${said(app, d)}`)));
}
