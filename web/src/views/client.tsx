import type { Explanation, Client as OneClient, Replica } from "../api";
import { useLoad } from "../load";
import { Ago, Code, Empty, Links, Panel, Problem, ResourceLink, StateTag } from "../parts";
import { linkTo, route, setQuery } from "../route";
import { numeric, Table } from "../table";
import { number } from "../words";
import { ClientActions } from "./commands";
import { Timeline } from "./timeline";

export function Client({ node }: { node: string }) {
  const type = route.value.query.get("type") ?? "";
  const name = route.value.query.get("name") ?? "";
  const { data, failure } = useLoad("/api/v1/clients/{node}", [node], { replicas: true });
  const client = data?.items[0];
  const elsewhere = data?.replicas?.find((r) => r.id === client?.replica && !r.asked);
  return (
    <>
      <h1>
        <span class="mono">{node}</span> {client && <StateTag state={client.state} />}
      </h1>
      {client && (
        <p class="sub">
          {about(client)} ·{" "}
          <a class="info" href={linkTo("diff", [], { from: `client:${node}` })}>
            compare
          </a>{" "}
          <Links of={{ node, group: client.groups[0] }} /> <ClientActions node={node} groups={client.groups} connected={!client.left} />
        </p>
      )}
      <Problem failure={failure} />
      {client?.troubles?.map((t) => (
        <p key={t.code + t.text} class="problem">
          <span class="tag warn">{t.code}</span> {t.text}
        </p>
      ))}
      <div class="grid">
        <div class="stack">
          <Why node={node} type={type} name={name} />
          <Timeline node={node} />
          {elsewhere ? <Elsewhere node={node} server={elsewhere} /> : <Resources node={node} type={type} />}
        </div>
        <div class="stack">
          {client && <Types client={client} node={node} />}
          {!elsewhere && <Node node={node} />}
        </div>
      </div>
    </>
  );
}

function about(c: OneClient): string {
  const stream = c.streams[0];
  return [
    c.agent,
    c.groups.length ? `group ${c.groups.join(", ")}` : "no group",
    c.peer,
    c.identity,
    c.left ? `left: ${c.left.why}` : stream && `${stream.api} ${stream.variant}`,
    c.replica,
  ]
    .filter(Boolean)
    .join(" · ");
}

// The chain from the files to the client. The first broken link is the reason.
function Why({ node, type, name }: { node: string; type: string; name: string }) {
  const { data: e, failure } = useLoad("/api/v1/clients/{node}/explain", [node], { type, name, replicas: true });
  const what = type ? `${type} ${name}`.trim() : "its configuration";
  return (
    <Panel
      title={e?.broken ? `Why does it not have ${what}?` : `Does it have ${what}?`}
      note={e && !e.broken && "yes"}
      link={
        type && (
          <button type="button" onClick={() => setQuery({ type: "", name: "" })}>
            all types
          </button>
        )
      }
    >
      <Problem failure={failure} />
      {e && <Chain of={e} />}
    </Panel>
  );
}

function Chain({ of: e }: { of: Explanation }) {
  return (
    <>
      <ol class="chain">
        {e.links.map((l) => (
          <li key={l.name} class={l.name === e.broken ? "broken" : !l.known ? "unknown" : l.ok ? "ok" : "broken"}>
            <b>{l.name}</b>
            <span>{l.text}</span>
            {l.place && <span class="place">{l.place}</span>}
          </li>
        ))}
      </ol>
      {e.advice && <p class="advice">{e.advice}</p>}
    </>
  );
}

function Types({ client, node }: { client: OneClient; node: string }) {
  return (
    <Panel title="What it has">
      <Table columns={["type", "state", numeric("resources"), "accepted"]}>
        {client.types.map((t) => (
          <tr key={`${t.stream} ${t.url}`}>
            <td>
              <a href={linkTo("clients", [node], { type: t.type })} title={t.url}>
                {t.type}
              </a>
            </td>
            <td>
              <StateTag state={t.state} />
            </td>
            <td class="number">{t.wildcard ? `all${t.names ? ` + ${number(t.names)}` : ""}` : number(t.names)}</td>
            <td>{t.acked ? <Ago at={t.acked.at} /> : "never"}</td>
          </tr>
        ))}
      </Table>
      {client.types.length === 0 && <Empty>It has no subscription.</Empty>}
    </Panel>
  );
}

// In place of the resources of a client of another server, which only that server knows.
function Elsewhere({ node, server: s }: { node: string; server: Replica }) {
  return (
    <Panel title="Resources">
      <Empty>
        <span class="mono">{node}</span> is connected to server <span class="mono">{s.id}</span>, and only that server knows its resources.{" "}
        {/^https?:\/\//.test(s.address ?? "") && <a class="info" href={s.address + location.pathname + location.search}>{`Open this view at ${s.address}`}</a>}
      </Empty>
    </Panel>
  );
}

function Resources({ node, type }: { node: string; type: string }) {
  const { data, failure } = useLoad(type ? "/api/v1/clients/{node}/resources/{type}" : "/api/v1/clients/{node}/resources", type ? [node, type] : [node], {
    limit: 200,
  });
  return (
    <Panel
      title={type ? `Resources of type ${type}` : "Resources"}
      note={data && (data.items.length < data.total ? `${number(data.items.length)} of ${number(data.total)}` : number(data.total))}
    >
      <Problem failure={failure} />
      {data && data.items.length > 0 && (
        <Table
          columns={[
            "type",
            "name",
            "state",
            "place",
            <span key="why" class="hidden">
              reason
            </span>,
          ]}
        >
          {data.items.map((r) => (
            <tr key={`${r.type} ${r.name}`}>
              <td>{r.type}</td>
              <td class="mono wide">
                <ResourceLink of={r}>{r.name}</ResourceLink>
              </td>
              <td>
                <StateTag state={r.state} />
              </td>
              <td class="mono">{r.place}</td>
              <td>
                <a class="info" href={linkTo("clients", [node], { type: r.type, name: r.name })}>
                  why
                </a>{" "}
                {r.sent !== r.acked && (
                  <a class="info" href={linkTo("diff", [], { from: `accepted:${node}`, to: `sent:${node}`, type: r.type, name: r.name })}>
                    diff
                  </a>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      {data && data.total === 0 && <Empty>It has no resource.</Empty>}
    </Panel>
  );
}

function Node({ node }: { node: string }) {
  const { data } = useLoad("/api/v1/clients/{node}/node", [node]);
  if (!data) return null;
  return (
    <Panel title="Node">
      <Code label="Node message">{JSON.stringify(data.node, null, 2)}</Code>
    </Panel>
  );
}
