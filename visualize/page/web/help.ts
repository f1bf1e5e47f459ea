// What `?` shows.

import { fill, h } from "./dom.js";

const keys: [string, [string, string][]][] = [
  ["Everywhere", [
    ["1 … 5", "timeline, flame graph, who blocks whom, slow requests, trust"],
    ["/", "search for a function or thread"],
    ["Esc", "close, then drop the selection"],
    ["0", "show the whole recording"],
    ["z", "zoom to the selected time, and back with Z"],
    ["t", "light, dark, as the system says"],
    ["?", "this"],
  ]],
  ["Timeline", [
    ["w s, + −", "zoom in and out, at the pointer"],
    ["a d, ← →", "earlier, later"],
    ["↑ ↓", "select the thread above, below"],
    ["Enter", "show the selected thread’s calls"],
    ["n p", "next, previous wait of the selected thread"],
    ["r", "arrows from releaser to waiter"],
    ["drag", "select time (Shift: move)"],
    ["Ctrl + wheel", "zoom (over the charts the wheel alone)"],
    ["double click", "zoom to what is under the pointer"],
    ["click on a name", "select the thread (Ctrl: several)"],
  ]],
  ["Flame graph", [
    ["↑ ↓ ← →", "move"],
    ["Enter, click", "focus; Backspace: one level out"],
    ["click in the table", "a function’s lines, source, callers, callees"],
    ["i", "inverted: callers above"],
    ["b", "keep as the baseline to compare other selections with"],
  ]],
];

export class Help {
  readonly element = h("dialog", { class: "help", "aria-label": "Keys" });

  constructor() {
    fill(
      this.element,
      h("h2", {}, "Keys"),
      h("div", { class: "keys" }, ...keys.map(([title, list]) =>
        h("div", {}, h("h3", {}, title), h("dl", {}, ...list.flatMap(([k, what]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, what)]))))),
      h("p", { class: "soft" }, "All views show the same selection of time and threads. It is kept in the address: copy it to send somebody here."),
      h("form", { method: "dialog" }, h("button", {}, "Close")),
    );
  }

  toggle(): void {
    if (this.element.open) this.element.close();
    else this.element.showModal();
  }
}
