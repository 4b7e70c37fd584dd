// The events of the server, read once for the whole page.
import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Event, type Query, request, signedOut, urlOf } from "./api";
import { type Batch, type Connection, readEvents, split } from "./stream";
import type { FromPage } from "./worker";

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

// Counts connections after the first one. A restarted server counts its events from 1, so the events from before a
// connection cannot be merged with later ones.
const reconnections = signal(0);

// The events that match a filter, oldest first: those that the server remembered when the view opened, the filter
// changed or the server came back, and the live ones since. The function again reads the remembered ones once more.
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
  }, [url, times.value, reconnections.value]);
  const known = new Map([...before.value, ...events.value.filter(matches)].map((e) => [e.id, e]));
  return {
    all: [...known.values()].sort((a, b) => a.id - b.id),
    again: () => {
      missed.value = 0;
      times.value++;
    },
  };
}

function take(b: Batch) {
  const back = connection.value === "away" && b.connection === "live"; // the server may have another state
  connection.value = b.connection;
  signedOut.value ||= b.connection === "out";
  if (back) {
    reconnections.value++;
    missed.value = 0;
  }
  events.value = [...b.events.toReversed(), ...(back ? [] : events.value)].slice(0, keep);
  missed.value += b.missed;
  if (back || b.events.some((e) => ["commit", "reject", "store"].includes(e.kind))) changes.value++;
  if (back || b.events.length) batches.value++;
}

let send: ((m: FromPage) => void) | undefined;

// Follows the events, also after a sign-in.
export function follow() {
  send ??= typeof SharedWorker === "undefined" ? ownStream() : sharedStream();
  send("follow");
}

// Ends the stream of all pages of this browser after a sign-out.
export const unfollow = () => send?.("out");

function sharedStream() {
  const { port } = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module" });
  port.onmessage = ({ data }: MessageEvent<Batch>) => take(data);
  addEventListener("pagehide", () => port.postMessage(null));
  addEventListener("pageshow", (e) => e.persisted && follow());
  return (m: FromPage) => port.postMessage(m);
}

// Some browsers for telephones have no shared workers.
function ownStream() {
  let stop = new AbortController();
  return (m: FromPage) => {
    stop.abort();
    stop = new AbortController();
    if (m === "follow") void readEvents(stop.signal, take);
    if (m === "out") take({ connection: "out", events: [], missed: 0 });
  };
}
