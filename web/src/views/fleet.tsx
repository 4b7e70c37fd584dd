import type { State, TypeLoad } from "../api";
import { changes } from "../live";
import { useLoad } from "../load";
import { Empty, lookOf, NodeLink, now, Panel, Problem, ResourceLink } from "../parts";
import { linkTo } from "../route";
import { stateKey } from "../search";
import { numeric, Table } from "../table";
import { duration, number, units, wordOf } from "../words";

const soon = 30 * 86_400_000; // ms; the server warns of certificates that end within this time

export function Fleet() {
  const { data: f, failure } = useLoad("/api/v1/fleet", [], {}, changes);
  return (
    <>
      <h1>Fleet</h1>
      <p class="sub">{f && `${number(f.connected)} ${units(f.connected, "client")} of this server, when the configuration last changed`}</p>
      <Problem failure={failure} />
      {f && (
        <div class="grid">
          <div class="stack">
            <Panel title="Versions of clients">
              {!f.agents.length && <Empty>No client is connected.</Empty>}
              {f.agents.length > 0 && (
                <Table label="Versions" columns={["program", numeric("clients"), "state"]}>
                  {f.agents.map(({ agent, clients: c }) => (
                    <tr key={agent}>
                      <td class="wide">{agent ? <a href={linkTo("clients", [], { q: `agent:"${agent}"` })}>{agent}</a> : "unknown"}</td>
                      <td class="number">{number(c.connected)}</td>
                      <td>
                        {(Object.entries(c.by) as [State, number][]).map(
                          ([state, n]) =>
                            n > 0 && (
                              <a key={state} class={`tag ${lookOf(state)}`} href={linkTo("clients", [], { q: `agent:"${agent}" ${stateKey(state)}` })}>
                                {number(n)} {wordOf(state)}
                              </a>
                            ),
                        )}
                      </td>
                    </tr>
                  ))}
                </Table>
              )}
            </Panel>
            <Loads
              title="Largest responses"
              note="the last response of each type; gRPC clients accept 4 MiB by default"
              empty="No client has a response."
              of={f.responses.filter((l) => l.bytes)}
            />
            <Loads title="Most names" note="names to which a client subscribes" empty="No client subscribes to a name." of={f.names.filter((l) => l.names)} />
          </div>
          <Panel title="Certificates" note="in served resources">
            {!f.certificates.length && <Empty>No served resource has a certificate. Certificates in files of the clients' machines are unknown.</Empty>}
            <ul class={f.certificates.length ? "plain" : "hidden"}>
              {f.certificates.map((c) => {
                const left = new Date(c.ends).getTime() - now.value;
                return (
                  <li key={`${c.group} ${c.type} ${c.name} ${c.path}`}>
                    <span class={`tag ${left < 0 ? "bad" : left < soon ? "warn" : "idle"}`} title={new Date(c.ends).toLocaleString()}>
                      {left < 0 ? "expired" : `in ${duration(left)}`}
                    </span>{" "}
                    <ResourceLink of={c} /> <span class="age">{c.group}</span>
                    {c.place && <p class="place">{c.place}</p>}
                  </li>
                );
              })}
            </ul>
          </Panel>
        </div>
      )}
    </>
  );
}

function Loads({ title, note, empty, of: all }: { title: string; note: string; empty: string; of: TypeLoad[] }) {
  return (
    <Panel title={title} note={note}>
      {!all.length && <Empty>{empty}</Empty>}
      {all.length > 0 && (
        <div class="scroll">
          <Table label={title} columns={["client", "type", numeric("bytes"), numeric("resources"), numeric("names")]}>
            {all.map((l, i) => (
              <tr key={i}>
                <td class="mono wide">
                  <NodeLink node={l.node} />
                </td>
                <td>{l.type}</td>
                <td class="number">{number(l.bytes)}</td>
                <td class="number">{number(l.resources)}</td>
                <td class="number">{number(l.names)}</td>
              </tr>
            ))}
          </Table>
        </div>
      )}
    </Panel>
  );
}
