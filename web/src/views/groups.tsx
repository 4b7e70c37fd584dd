import { useSignal } from "@preact/signals";
import { may } from "../actions";
import { type Preview as Found, type Group, type Hold, post } from "../api";
import { changes } from "../live";
import { useAsk, useLoad } from "../load";
import { Ago, Empty, Panel, Problem, ResourceLink } from "../parts";
import { linkTo } from "../route";
import { numeric, Table } from "../table";
import { number, units } from "../words";
import { GroupActions } from "./commands";

export function Groups() {
  const { data, failure } = useLoad("/api/v1/groups");
  const { data: status } = useLoad("/api/v1/status", [], {}, changes);
  const holds = status?.config.store?.holds ?? [];
  const acts = data?.items.some((g) => may("operate", [g.name])) ?? false;
  const rejected = data?.items.filter((g) => g.rejected) ?? [];
  return (
    <>
      <h1>Groups</h1>
      <p class="sub">
        {data && `${number(data.items.length)} ${units(data.items.length, "group")}. A node gets the resources of each group that selects it.`}{" "}
        {status?.config.store && "The clients are those of this server."}
      </p>
      <Problem failure={failure} />
      {rejected.map((g) => (
        <Rejected key={g.name} group={g} />
      ))}
      <div class="stack">
        <section class="panel scroll">
          <Table label="Groups" columns={["group", "selects", numeric("resources"), numeric("clients"), "state", "place", ...(acts ? ["actions"] : [])]}>
            {data?.items.map((g) => (
              <Row key={g.name} group={g} hold={holds.find((h) => h.group === g.name)} acts={acts} />
            ))}
          </Table>
        </section>
        <Preview />
      </div>
    </>
  );
}

function Row({ group: g, hold, acts }: { group: Group; hold: Hold | undefined; acts: boolean }) {
  const nacked = g.clients.by.NACKED ?? 0;
  return (
    <tr>
      <td class="cut">{g.name}</td>
      <td class="mono text">{g.rule || <span class="age">nodes that no rule selects</span>}</td>
      <td class="number">
        <a href={linkTo("resources", [], { group: g.name })}>{number(g.resources)}</a>
      </td>
      <td class="number">
        <a href={linkTo("clients", [], { q: `group:${g.name}` })}>{number(g.clients.connected)}</a>
      </td>
      <td>
        {nacked > 0 && (
          <a class="tag bad" href={linkTo("clients", [], { q: `group:${g.name} state:refused` })}>
            {number(nacked)} refused
          </a>
        )}
        {g.rejected && <span class="tag bad">load rejected</span>}
        {hold && (
          <a class="tag info" title={hold.message} href={hold.rollout ? linkTo("rollouts", [hold.rollout]) : "/rollouts"}>
            {hold.rollout ? `rollout to ${hold.next}` : `frozen at ${hold.revision}`}
          </a>
        )}
        {!nacked && !g.rejected && !hold && <span class="tag ok">ok</span>}
      </td>
      <td class="mono cut" title={g.place}>
        {g.place}
      </td>
      {acts && (
        <td>
          <GroupActions group={g.name} clients={g.clients.connected} />
        </td>
      )}
    </tr>
  );
}

// The errors of a group whose files were rejected.
function Rejected({ group: g }: { group: Group }) {
  const errors = g.rejected?.errors ?? [];
  return (
    <div class="problem">
      <p>
        Group {g.name} keeps its last good configuration, since <Ago at={g.rejected?.since} /> ago:
      </p>
      <ul class="errors">
        {errors.map((e) => (
          <li key={e}>{e}</li>
        ))}
      </ul>
    </div>
  );
}

const example = `id: edge-1
cluster: edge
metadata: {team: pay}`;

// The groups that a pasted node would get.
function Preview() {
  const text = useSignal("");
  const { data, failure, busy, ask } = useAsk<Found>();
  return (
    <Panel title="Preview" note="a node as JSON or YAML, in the form of an Envoy's bootstrap">
      <form
        class="paste"
        onSubmit={(e) => {
          e.preventDefault();
          void ask(() => post("/api/v1/groups/preview", [], { node: text.value }));
        }}
      >
        <textarea rows={6} spellcheck={false} aria-label="Node" placeholder={example} onInput={(e) => (text.value = e.currentTarget.value)} />
        <button type="submit" disabled={busy}>
          Show its groups
        </button>
      </form>
      <div aria-live="polite">
        <Problem failure={failure} />
        {data && <Result of={data} />}
      </div>
    </Panel>
  );
}

function Result({ of: p }: { of: Found }) {
  return (
    <>
      {p.otherwise && <p class="empty">{p.otherwise}</p>}
      {p.notes?.map((n) => (
        <p key={n} class="empty">
          {n}
        </p>
      ))}
      {p.groups.length > 0 && (
        <Table label="Groups of the node" columns={["group", "because", "rule"]}>
          {p.groups.map((g) => (
            <tr key={g.name}>
              <td>{g.name}</td>
              <td class="mono text">{g.why}</td>
              <td class="mono">{g.place}</td>
            </tr>
          ))}
        </Table>
      )}
      {p.refused && <Empty>The server refuses this node.</Empty>}
      {!p.refused && !p.total && <Empty>The node gets no resources.</Empty>}
      {p.resources.length > 0 && (
        <div class="scroll">
          <Table label="Resources of the node" columns={["type", "name", "group", numeric("bytes"), "place"]}>
            {p.resources.map((r) => (
              <tr key={`${r.type} ${r.name}`}>
                <td>{r.type}</td>
                <td class="mono wide">
                  <ResourceLink of={r}>{r.name}</ResourceLink>
                </td>
                <td>
                  {r.group} {r.hides && <span class="age">hides {r.hides.join(", ")}</span>}
                </td>
                <td class="number">{number(r.bytes)}</td>
                <td class="mono">{r.place}</td>
              </tr>
            ))}
          </Table>
        </div>
      )}
      {p.total > p.resources.length && <Empty>and {number(p.total - p.resources.length)} more</Empty>}
    </>
  );
}
