// The events of the server, read once for the whole page.
import { signal } from "@preact/signals";
import { type Event, Failure, request, urlOf } from "./api";

export type Connection = "connecting" | "live" | "away";
export const connection = signal<Connection>("connecting");

// Counts batches of events. Views read it to know that their data may be old.
export const batches = signal(0);

// Counts batches with a change of the configuration or of the store.
export const changes = signal(0);

// The newest events, newest first.
export const events = signal<Event[]>([]);

// The number of events that the server dropped because this page was slow.
export const missed = signal(0);

const keep = 500;
const pause = 250; // ms between batches
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

// Returns the events of a node that the server remembers, oldest first.
export async function remembered(node: string, until: AbortSignal): Promise<Event[]> {
  const answer = await request(urlOf("/api/v1/events", [], { node, stop: true }), until);
  return split(await answer.text()).data.map((text) => JSON.parse(text) as Event);
}

// Reads events until the signal is aborted. It connects again after a failure, and continues after the last event.
export async function follow(until: AbortSignal): Promise<void> {
  let after = 0;
  let pending: Event[] = [];
  const deliver = setInterval(() => {
    if (!pending.length) return;
    events.value = [...pending.reverse(), ...events.value].slice(0, keep);
    missed.value += pending.reduce((n, e) => n + (e.missed ?? 0), 0);
    if (pending.some((e) => ["commit", "reject", "store"].includes(e.kind))) changes.value++;
    pending = [];
    batches.value++;
  }, pause);
  until.addEventListener("abort", () => clearInterval(deliver));
  while (!until.aborted) {
    try {
      const answer = await request(after ? `/api/v1/events?after=${after}` : "/api/v1/events", until);
      const wasAway = connection.value === "away";
      connection.value = "live";
      if (wasAway) {
        batches.value++; // the server may have another state
        changes.value++;
      }
      const reader = (answer.body as ReadableStream<Uint8Array<ArrayBuffer>>).pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        const read = split(rest + value);
        rest = read.rest;
        for (const text of read.data) {
          const e = JSON.parse(text) as Event;
          after = e.id;
          pending.push(e);
        }
      }
    } catch (e) {
      if (until.aborted) return;
      if (e instanceof Failure && e.status === 401) return;
      after = 0; // a restarted server counts its events from 1
    }
    connection.value = "away";
    await new Promise((done) => setTimeout(done, retry));
  }
}
