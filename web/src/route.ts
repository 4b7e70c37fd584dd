// The URL is the state of the page: each view reads its parameters from it.
import { signal } from "@preact/signals";
import { nameOf, type Query, urlOf } from "./api";

export interface Route {
  path: string[]; // decoded segments, such as ["clients", "edge-1"]
  query: URLSearchParams;
}

// Splits a URL. A malformed escape stays as it is.
export function parse(url: URL): Route {
  const decode = (s: string) => {
    try {
      return decodeURIComponent(s);
    } catch {
      return s;
    }
  };
  return {
    path: url.pathname
      .split("/")
      .filter(Boolean)
      .map((s) => nameOf(decode(s))),
    query: url.searchParams,
  };
}

export const route = signal<Route>({ path: [], query: new URLSearchParams() });

export const linkTo = (view: string, parts: string[] = [], query: Query = {}) => urlOf(`/${view}${"/{}".repeat(parts.length)}`, parts, query);

// Opens a URL of the page. The URL that is open gets no second entry in the history.
export function go(href: string, replace = false) {
  const same = new URL(href, location.href).href === location.href;
  history[replace || same ? "replaceState" : "pushState"](null, "", href);
  route.value = parse(new URL(location.href));
  if (!replace) scrollTo(0, 0);
}

// Sets parameters of the current URL. With replace the history gets no entry.
export function setQuery(changes: Record<string, string>, replace = true) {
  const q = new URLSearchParams(route.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) q.set(name, value);
    else q.delete(name);
  }
  const text = q.toString();
  go(location.pathname + (text ? `?${text}` : ""), replace);
}

// Follows links within the page and the browser's history.
export function start() {
  const read = () => {
    route.value = parse(new URL(location.href));
  };
  addEventListener("popstate", read);
  document.addEventListener("click", (e) => {
    const link = (e.target as Element).closest("a");
    const plain = e.button === 0 && !e.metaKey && !e.ctrlKey && !e.shiftKey && !e.defaultPrevented;
    if (!link || !plain || link.target || link.origin !== location.origin || link.pathname.startsWith("/api/")) return;
    e.preventDefault();
    go(link.href);
  });
  read();
}
