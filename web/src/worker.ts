// The shared worker of all pages of a browser: a browser opens few connections to a server, and each page would keep
// one of them.
import { type Batch, readEvents } from "./stream";

// A page sends "follow" when it opens and after each sign-in, "out" after a sign-out, and null when it closes.
export type FromPage = "follow" | "out" | null;

const pages = new Set<MessagePort>();
let stop: AbortController | undefined; // undefined: no stream
let last: Batch = { connection: "connecting", events: [], missed: 0 };

function begin() {
  stop = new AbortController();
  void readEvents(stop.signal, (b) => {
    last = b;
    if (b.connection === "out") stop = undefined;
    for (const p of pages) p.postMessage(b);
  });
}

addEventListener("connect", (e) => {
  const [page] = (e as MessageEvent).ports;
  if (!page) return;
  page.onmessage = ({ data }: MessageEvent<FromPage>) => {
    if (!data) {
      pages.delete(page);
      if (pages.size) return;
      stop?.abort();
      stop = undefined;
      return;
    }
    pages.add(page);
    if (data === "out") {
      stop?.abort();
      stop = undefined;
      last = { connection: "out", events: [], missed: 0 };
      for (const p of pages) p.postMessage(last);
      return;
    }
    if (stop) {
      page.postMessage({ ...last, events: [] });
      return;
    }
    begin();
  };
});
