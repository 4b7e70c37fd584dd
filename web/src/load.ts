// Data of a view: loaded when its URL changes, and again after events.
import type { ReadonlySignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { Failure, get, type Path, type Query, signedOut, urlOf } from "./api";
import { batches } from "./live";

const apart = 1000; // ms between two loads of the same data
const retry = 5000; // ms after a failed load

// The server makes the answers of these paths once for all pages.
const paced: Path[] = ["/api/v1/status", "/api/v1/clients"];

export interface Loaded<T> {
  data?: T;
  failure?: Failure; // of the last load; the data is then older
}

// Calls load at once, when the signal changes, and again after a load that returns false, one call at a time. The result
// ends this.
function repeat(load: () => Promise<boolean>, on: ReadonlySignal<number>): () => void {
  let last = 0;
  let timer = 0;
  let again = 0;
  let busy = false;
  let due = false;
  let ended = false;
  const next = () => {
    due = true;
    if (busy || timer) return;
    timer = window.setTimeout(
      async () => {
        timer = 0;
        due = false;
        busy = true;
        clearTimeout(again);
        last = Date.now();
        const ok = await load();
        if (ended) return;
        busy = false;
        if (due) next();
        else if (!ok) again = window.setTimeout(next, retry);
      },
      last ? Math.max(0, last + apart - Date.now()) : 0,
    );
  };
  const leave = on.subscribe(next);
  return () => {
    leave();
    clearTimeout(timer);
    clearTimeout(again);
    ended = true; // a load in progress starts no other
  };
}

// Loads the answer of a path of the API, and again when the signal changes. Old data stays visible until the new data arrives, also when a load fails.
export function useLoad<P extends Path>(path: P, parts: string[] = [], query: Query = {}, on: ReadonlySignal<number> = batches) {
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
        return true;
      } catch (e) {
        const failure = e instanceof Failure ? e : new Failure(0, String(e));
        if (!stop.signal.aborted) set((s) => ({ ...(s.url === url && s), url, failure }));
        return failure.status >= 400 && failure.status < 500 && failure.status !== 429; // the same request fails again
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
