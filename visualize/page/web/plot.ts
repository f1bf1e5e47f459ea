// What the parts of the timeline share: where a time lies on the screen.

import type { App } from "./app.js";

export interface Plot {
  readonly app: App;
  /** Width of what stands before the plot, in CSS pixels. */
  readonly gutter: number;
  plotWidth(): number;
  x(ns: number): number;
  time(x: number): number;
}

export const rowHeight = 15; // of calls
