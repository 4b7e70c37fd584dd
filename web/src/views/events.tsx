import { events, missed } from "../live";
import { Ago, Empty, NodeLink } from "../parts";
import { route } from "../route";
import { parseSearch } from "../search";
import { Head } from "../table";

const looks: Record<string, string> = {
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

export function Events() {
  const text = route.value.query.get("q") ?? "";
  const { filter } = parseSearch(text, ["node", "kind", "type"]);
  const words = (filter.node ?? []).map((p) => p.replaceAll("*", ""));
  const all = events.value.filter(
    (e) =>
      words.every((w) => e.node?.includes(w)) &&
      (filter.kind ?? [e.kind]).includes(e.kind) &&
      (filter.type ?? [e.type ?? ""]).some((t) => t.toLowerCase() === (e.type ?? "").toLowerCase()),
  );
  return (
    <>
      <h1>Events</h1>
      <p class="sub">The newest events since this page was opened, and those that the server remembered.</p>
      {missed.value > 0 && <p class="problem">You missed {missed.value} events: this page was slow. Reload it for the present state.</p>}
      {all.length ? (
        <section class="panel">
          <table aria-label="Events">
            <thead>
              <tr>
                <Head columns={["age", "event", "node", "type", "text"]} />
              </tr>
            </thead>
            <tbody>
              {all.slice(0, 200).map((e) => (
                <tr key={e.id}>
                  <td>
                    <Ago at={e.at} />
                  </td>
                  <td>
                    <span class={`tag ${looks[e.kind] ?? "idle"}`}>{e.kind}</span>
                  </td>
                  <td class="mono wide">{e.node && <NodeLink node={e.node} />}</td>
                  <td>{e.type}</td>
                  <td class="wide" title={e.text}>
                    {e.text || (e.count !== undefined && `${e.count} resources`)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      ) : (
        <Empty>No event {text ? "matches" : "yet"}.</Empty>
      )}
    </>
  );
}
