// What every view gets.

import type { Chains, Store } from "./store.js";
import type { Shared } from "./state.js";

export interface App {
  store: Store;
  shared: Shared;
  /** What waits were spent on; null until it is found. */
  chains: Chains | null;
  /** Shows a piece or an edge at the side; null closes. */
  detail(content: Node | null): void;
  /** Runs a question; failures are shown, and of several under one name only the latest counts. */
  ask<T>(name: string, question: () => Promise<T>, then: (answer: T) => void): void;
  /** threadName is what a thread is called: its name, and its number where another thread has the same. */
  threadName(i: number): string;
  /** alone says whether no other thread has the same name. */
  alone(i: number): boolean;
  /** Goes to a stretch of a thread's time. */
  goTo(thread: number, from: number, to: number): void;
}

export interface View {
  readonly element: HTMLElement;
  /** Called when the view is shown and whenever what it shows may have changed. */
  update(what: Set<string>): void;
  /** Keys of this view; true where the key was used. */
  key?(e: KeyboardEvent): boolean;
}
