import { matches as matchesPattern } from "../actions";
import type { Event } from "../api";
import { missed, useEvents } from "../live";
import { Ago, Empty, lookOfEvent, NodeLink } from "../parts";
import { route } from "../route";
import { parseSearch } from "../search";
import { Table } from "../table";
import { number, short, units, wordOf } from "../words";

export function Events() {
  const text = route.value.query.get("q") ?? "";
  const { filter, problem } = parseSearch(text, ["node", "kind", "type"]);
  const matches = (e: Event) =>
    (filter.node ?? []).every((p) => matchesPattern(p, e.node ?? "")) &&
    (filter.kind ?? [e.kind]).includes(e.kind) &&
    (filter.type ?? [e.type ?? ""]).some((t) => t.toLowerCase() === (e.type ?? "").toLowerCase());
  const { all, again } = useEvents({ kind: filter.kind, type: filter.type?.[0] }, matches);
  const shown = all.filter(matches).reverse().slice(0, 200);
  return (
    <>
      <h1>Events</h1>
      <p class="sub">The newest {shown.length} events that the server remembers, as they happen.</p>
      {problem && <p class="problem">{problem}</p>}
      {missed.value > 0 && (
        <p class="problem">
          The server had more events than this page can show: {number(missed.value)} are missing.{" "}
          <button type="button" onClick={again}>
            Read them
          </button>
        </p>
      )}
      {shown.length ? (
        <section class="panel">
          <Table label="Events" columns={["age", "event", "node", "type", "text"]}>
            {shown.map((e) => (
              <tr key={e.id}>
                <td>
                  <Ago at={e.at} />
                </td>
                <td>
                  <span class={`tag ${lookOfEvent(e.kind)}`}>{wordOf(e.kind)}</span>
                </td>
                <td class="mono wide">{e.node && <NodeLink node={e.node} />}</td>
                <td>{e.type}</td>
                <td class="text">{(e.text && short(e.text)) || (e.count !== undefined && `${number(e.count)} ${units(e.count, "resource")}`)}</td>
              </tr>
            ))}
          </Table>
        </section>
      ) : (
        <Empty>No event {text ? "matches" : "yet"}.</Empty>
      )}
    </>
  );
}
