// Data of a view: loaded when its URL changes, and again after events.
import type { Signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { Failure, get, type Path, type Query, signedOut, urlOf } from "./api";
import { batches } from "./live";

const apart = 1000; // ms between two loads of the same data

// The server makes the answers of these paths once for all pages.
const paced: Path[] = ["/api/v1/status", "/api/v1/clients"];

export interface Loaded<T> {
  data?: T;
  failure?: Failure; // of the last load; the data is then older
}

// Calls load at once and when the signal changes, one call at a time. The result ends this.
function repeat(load: () => Promise<void>, on: Signal<number>): () => void {
  let last = 0;
  let timer = 0;
  let busy = false;
  let due = false;
  const next = () => {
    due = true;
    if (busy || timer) return;
    timer = window.setTimeout(
      async () => {
        timer = 0;
        due = false;
        busy = true;
        last = Date.now();
        await load();
        busy = false;
        if (due) next();
      },
      last ? Math.max(0, last + apart - Date.now()) : 0,
    );
  };
  const leave = on.subscribe(next);
  return () => {
    leave();
    clearTimeout(timer);
    busy = true; // a load in progress starts no other
  };
}

// Loads the answer of a path of the API, and again when the signal changes. Old data stays visible until the new data arrives, also when a load fails.
export function useLoad<P extends Path>(path: P, parts: string[] = [], query: Query = {}, on: Signal<number> = batches) {
  type Answer = Awaited<ReturnType<typeof get<P>>>;
  const url = urlOf(path, parts, query);
  const [state, set] = useState<Loaded<Answer> & { url: string }>({ url });
  const out = signedOut.value;
  useEffect(() => {
    if (out) return;
    const stop = new AbortController();
    let pace = {}; // the first answer comes at once
    const end = repeat(async () => {
      try {
        set({ url, data: await get(path, parts, { ...query, ...pace }, stop.signal) });
        if (paced.includes(path)) pace = { pace: `${apart}ms` };
      } catch (e) {
        if (!stop.signal.aborted) set((s) => ({ ...(s.url === url && s), url, failure: e instanceof Failure ? e : new Failure(0, String(e)) }));
      }
    }, on);
    return () => {
      end();
      stop.abort();
    };
  }, [url, out]);
  const { data, failure }: Loaded<Answer> = state.url === url ? state : {};
  return { data, failure };
}

// An answer that a button asks for.
export function useAsk<T>() {
  const [state, set] = useState<Loaded<T> & { busy?: boolean }>({});
  const ask = async (f: () => Promise<T>) => {
    set((s) => ({ ...s, busy: true }));
    try {
      set({ data: await f() });
    } catch (e) {
      set({ failure: e instanceof Failure ? e : new Failure(0, String(e)) });
    }
  };
  return { ...state, ask };
}
