// Reads the events of the server. One worker does this for all pages of a browser, so this file needs nothing of the
// page.
import type { components } from "./api.gen";

type Event = components["schemas"]["Event"];

export type Connection = "connecting" | "live" | "away" | "out"; // out: the server asks for a credential

// A Batch is what a page learns at once.
export interface Batch {
  connection: Connection;
  events: Event[]; // oldest first
  missed: number; // events that the server left out
}

const pause = 250; // ms between two writes of the server
const retry = 2000; // ms

// Splits a stream of server-sent events into their data. It returns the rest, which is not complete.
export function split(text: string): { data: string[]; rest: string } {
  const parts = text.split("\n\n");
  const rest = parts.pop() ?? "";
  const data = parts.flatMap((p) => {
    const lines = p.split("\n").filter((l) => l.startsWith("data: "));
    return lines.length ? [lines.map((l) => l.slice(6)).join("\n")] : [];
  });
  return { data, rest };
}

// Reads events until the signal is aborted or the server asks for a credential. It connects again after the end of a
// stream and gets the remembered events again, because a restarted server counts its events from 1.
export async function readEvents(signal: AbortSignal, deliver: (b: Batch) => void): Promise<void> {
  while (!signal.aborted) {
    try {
      const answer = await fetch(`/api/v1/events?pace=${pause}ms&after=0`, { signal });
      if (answer.status === 401) return deliver({ connection: "out", events: [], missed: 0 });
      if (!answer.ok || !answer.body) throw new Error(answer.statusText);
      deliver({ connection: "live", events: [], missed: 0 });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", first = true; ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        const read = split(rest + value);
        rest = read.rest;
        const events = read.data.map((text) => JSON.parse(text) as Event);
        if (!events.length) continue;
        // Events from before the first batch are not missed: a view reads them itself.
        const missed = first ? 0 : events.reduce((n, e) => n + (e.missed ?? 0), 0);
        first = false;
        deliver({ connection: "live", events, missed });
      }
    } catch {
      if (signal.aborted) return;
    }
    deliver({ connection: "away", events: [], missed: 0 });
    await new Promise((done) => setTimeout(done, retry));
  }
}
