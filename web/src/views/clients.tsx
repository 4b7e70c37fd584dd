import { signal } from "@preact/signals";
import type { Client, TypeStatus } from "../api";
import { useLoad } from "../load";
import { Ago, Empty, lookOf, NodeLink, Problem, StateTag } from "../parts";
import { go, linkTo, route } from "../route";
import { parseSearch } from "../search";
import { useShown, useWindow, VirtualTable } from "../table";
import { number, short, wordOf } from "../words";

// The last two selected clients, to compare them.
const selected = signal<string[]>([]);

const columns = ["LDS", "RDS", "CDS", "EDS", "SDS"];

export function Clients() {
  const text = route.value.query.get("q") ?? "";
  const search = parseSearch(text, ["node", "group", "state", "type", "agent"]);
  const { window, onWindow } = useWindow();
  const { data, failure } = useLoad("/api/v1/clients", [], { ...search.filter, all: true, replicas: true, offset: window.from, limit: window.count });
  const shown = useShown(data, window.from);
  const list = shown.data;
  return (
    <>
      <h1>Clients</h1>
      <p class="sub">
        {list && `${number(list.total)} ${text ? "match" : "connected"}`} {text && <code>{text}</code>} <Compare nodes={selected.value} />
      </p>
      {search.problem && <p class="problem">{search.problem}</p>}
      <Problem failure={failure} />
      {list && !list.total && <Empty>{text ? "No client matches this search." : "No client is connected."}</Empty>}
      {list && list.total > 0 && (
        <section class="panel">
          <VirtualTable
            label="Clients"
            head={["node", "state", ...columns, "groups", "agent", "peer", "connected"]}
            total={list.total}
            rows={list.items}
            from={shown.from}
            onWindow={onWindow}
            keyOf={(c: Client) => `${c.node} ${c.path ?? ""} ${c.peer ?? ""}`}
            row={(c: Client) => <Row client={c} />}
            open={(c: Client) => go(linkTo("clients", [c.node || (c.path ?? "")]))}
          />
        </section>
      )}
    </>
  );
}

function Compare({ nodes: [from, to] }: { nodes: string[] }) {
  if (from === undefined) return null;
  return to === undefined ? (
    <>· select another client to compare</>
  ) : (
    <>
      ·{" "}
      <a class="info" href={linkTo("diff", [], { from: `client:${from}`, to: `client:${to}` })}>
        compare {short(from)} with {short(to)}
      </a>
    </>
  );
}

function Row({ client: c }: { client: Client }) {
  const id = c.node || (c.path ?? "");
  return (
    <>
      <td class="mono wide">
        <input
          type="checkbox"
          aria-label={`Select ${short(id)}`}
          checked={selected.value.includes(id)}
          onChange={(e) => {
            const others = selected.value.filter((n) => n !== id);
            selected.value = e.currentTarget.checked ? [...others.slice(-1), id] : others;
          }}
        />{" "}
        <NodeLink node={id} />
      </td>
      <td>
        <StateTag state={c.state} />
      </td>
      {columns.map((t) => (
        <Cell key={t} of={c.types.find((x) => x.type === t)} />
      ))}
      <td>{c.groups.join(", ")}</td>
      <td>{c.agent}</td>
      <td class="mono">{c.peer}</td>
      <td>{c.left ? "left" : <Ago at={c.since} />}</td>
    </>
  );
}

function Cell({ of: t }: { of: TypeStatus | undefined }) {
  if (!t) return <td class="cell none">–</td>;
  const when = t.state === "SYNCED" ? t.acked?.at : t.sent?.at;
  return (
    <td class={`cell ${lookOf(t.state)}`} title={t.nacked?.error ?? (when && `since ${new Date(when).toLocaleTimeString()}`)}>
      {wordOf(t.state)}
    </td>
  );
}
