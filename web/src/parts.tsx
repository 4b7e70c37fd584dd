// Small pieces that several views have.
import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { clockAhead, type Failure, type Resource, type State } from "./api";
import { changes } from "./live";
import { useLoad } from "./load";
import { linkTo } from "./route";
import { duration, number, wordOf } from "./words";

// The time of the server, to the second.
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now() - clockAhead;
}, 1000);

// The time since a moment, with the moment on hover.
export function Ago({ at }: { at: string | undefined }) {
  if (!at) return null;
  const date = new Date(at);
  return (
    <time class="age" dateTime={at} title={date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" })}>
      {duration(now.value - date.getTime())}
    </time>
  );
}

const looks: Record<string, string> = {
  NACKED: "bad",
  STALE: "warn",
  WAITING: "info",
  SENT: "info",
  NOT_SENT: "info",
  SYNCED: "ok",
  IDLE: "idle",
  ABSENT: "idle",
  LEAVING: "idle",
};
const meanings: Record<string, string> = {
  NACKED: "the client refused the newest response",
  STALE: "no answer to a response for 30 s or more",
  WAITING: "the next response waits for another type, or for content of the client's groups",
  SENT: "sent, not answered yet",
  NOT_SENT: "subscribed, and the newest state is not sent yet",
  SYNCED: "the client has accepted the newest state",
  IDLE: "no subscription",
  ABSENT: "the resource does not exist, and the client knows that",
  LEAVING: "removed, but kept until nothing refers to it",
};

export const lookOf = (s: State) => looks[s] ?? "idle";

export function StateTag({ state }: { state: State }) {
  return (
    <span class={`tag ${lookOf(state)}`} title={meanings[state]}>
      {wordOf(state)}
    </span>
  );
}

const eventLooks: Record<string, string> = {
  nack: "bad",
  reject: "bad",
  quarantine: "bad",
  deny: "warn",
  leave: "warn",
  ack: "ok",
  recover: "ok",
  send: "info",
  wait: "info",
  commit: "info",
  store: "info",
};

export const lookOfEvent = (kind: string) => eventLooks[kind] ?? "idle";

const changeLooks: Record<string, string> = { added: "ok", removed: "bad", changed: "info" };

// How a resource or a field differs: "added", "removed" or "changed".
export const ChangeTag = ({ change }: { change: string }) => <span class={`tag ${changeLooks[change]}`}>{change}</span>;

export function Panel(p: { title: ComponentChildren; note?: ComponentChildren; link?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="panel">
      <header>
        <h2>{p.title}</h2>
        {p.note && <small>{p.note}</small>}
        {p.link && <span class="more">{p.link}</span>}
      </header>
      {p.children}
    </section>
  );
}

// A hint for a view without content.
export const Empty = ({ children }: { children: ComponentChildren }) => <p class="empty">{children}</p>;

const maxText = 200_000; // characters; a browser takes seconds for some millions

// Text that may need scrolling, also with the keyboard. Of a very long text it shows the beginning.
export function Code({ label, children }: { label: string; children: string }) {
  const all = useSignal(false);
  const cut = !all.value && children.length > maxText;
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: without the focus, only a mouse can scroll */}
      <section class="code" tabIndex={0} aria-label={label}>
        <pre>{cut ? children.slice(0, maxText) : children}</pre>
      </section>
      {cut && (
        <Empty>
          The first {number(maxText)} of {number(children.length)} characters.{" "}
          <button type="button" onClick={() => (all.value = true)}>
            Show all
          </button>
        </Empty>
      )}
    </>
  );
}

export function Problem({ failure }: { failure: Failure | undefined }) {
  if (!failure) return null;
  return (
    <p class="problem" role="alert">
      {failure.message} {failure.hint && <span class="hint">{failure.hint}</span>}
    </p>
  );
}

export function ResourceLink({ of, children }: { of: Pick<Resource, "type" | "name">; children?: ComponentChildren }) {
  return <a href={linkTo("resources", [of.type, of.name])}>{children ?? `${of.type} ${of.name}`}</a>;
}

export const NodeLink = ({ node, children }: { node: string; children?: ComponentChildren }) => <a href={linkTo("clients", [node])}>{children ?? node}</a>;

// The links to other programs whose values a view has. The view without values has the links that need none.
export function Links({ of: values }: { of: Record<string, string | undefined> }) {
  const { data } = useLoad("/version", [], {}, changes);
  const links = filled(data?.server.links ?? [], values);
  if (!links.length) return null;
  return (
    <span class="links">
      {links.map((l) => (
        <a key={l.name} href={l.url} target="_blank" rel="noopener noreferrer">
          {l.name} ↗
        </a>
      ))}
    </span>
  );
}

// Replaces the placeholders of links, and leaves out the links whose values are not known.
export function filled(links: { name: string; url: string }[], values: Record<string, string | undefined>) {
  return links.flatMap(({ name, url }) => {
    const wanted = [...url.matchAll(/\{(\w+)\}/g)].map((m) => m[1] ?? "");
    const fits = wanted.length ? wanted.every((w) => values[w] !== undefined) : !Object.keys(values).length;
    return fits && /^https?:\/\//.test(url) ? [{ name, url: url.replace(/\{(\w+)\}/g, (_, w: string) => encodeURIComponent(values[w] ?? "")) }] : [];
  });
}
