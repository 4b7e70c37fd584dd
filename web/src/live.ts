// The events of the server, read once for the whole page.
import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Event, Failure, type Query, request, urlOf } from "./api";

export type Connection = "connecting" | "live" | "away";
export const connection = signal<Connection>("connecting");

// Counts batches of events. Views read it to know that their data may be old.
export const batches = signal(0);

// Counts batches with a change of the configuration or of the store.
export const changes = signal(0);

// The newest events, newest first.
export const events = signal<Event[]>([]);

// The number of events that this page did not get: it gets the newest 25 of each batch.
export const missed = signal(0);

const keep = 500;
const pause = 250; // ms between batches, also of those that the server sends
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

// The events that match a filter, oldest first: those that the server remembered when the view opened or the filter
// changed, and the live ones since. The function again reads the remembered ones once more.
export function useEvents(filter: Query, matches: (e: Event) => boolean): { all: Event[]; again: () => void } {
  const before = useSignal<Event[]>([]);
  const times = useSignal(0);
  const url = urlOf("/api/v1/events", [], { ...filter, stop: true });
  useEffect(() => {
    const stop = new AbortController();
    request(url, stop.signal)
      .then((answer) => answer.text())
      .then(
        (text) => (before.value = split(text).data.map((one) => JSON.parse(one) as Event)),
        () => undefined, // the view shows the failures of its other parts
      );
    return () => stop.abort();
  }, [url, times.value]);
  const known = new Map([...before.value, ...events.value.filter(matches)].map((e) => [e.id, e]));
  return {
    all: [...known.values()].sort((a, b) => a.id - b.id),
    again: () => {
      missed.value = 0;
      times.value++;
    },
  };
}

// Reads events until the signal is aborted. It connects again after a failure, and continues after the last event.
export async function follow(until: AbortSignal): Promise<void> {
  let after = 0;
  let pending: Event[] = [];
  const deliver = setInterval(() => {
    if (!pending.length) return;
    events.value = [...pending.reverse(), ...events.value].slice(0, keep);
    if (pending.some((e) => ["commit", "reject", "store"].includes(e.kind))) changes.value++;
    pending = [];
    batches.value++;
  }, pause);
  until.addEventListener("abort", () => clearInterval(deliver));
  while (!until.aborted) {
    try {
      const answer = await request(urlOf("/api/v1/events", [], { pace: `${pause}ms`, after: after || undefined }), until);
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
          if (after) missed.value += e.missed ?? 0; // nobody missed those from before the page was opened
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
