import type { ServedResource } from "../api";
import { linesOf } from "../content";
import { changes } from "../live";
import { useLoad } from "../load";
import { Ago, Code, Empty, Links, Panel, Problem, ResourceLink, StateTag } from "../parts";
import { go, linkTo, route } from "../route";
import { numeric, useShown, useWindow, VirtualTable } from "../table";
import { number, short, units } from "../words";
import { Graph } from "./graph";

export function Resources({ type }: { type: string }) {
  const group = route.value.query.get("group") ?? "";
  const { window, onWindow } = useWindow();
  const query = { group, subscribers: true, offset: window.from, limit: window.count };
  const { data, failure } = useLoad(type ? "/api/v1/resources/{type}" : "/api/v1/resources", type ? [type] : [], query);
  const shown = useShown(data, window.from);
  const list = shown.data;
  return (
    <>
      <h1>{type ? `Resources of type ${type}` : "Resources"}</h1>
      <p class="sub">{list && `${number(list.total)} served${group && ` in group ${group}`}`}</p>
      <Problem failure={failure} />
      {list && !list.total && <Empty>No resource is served.</Empty>}
      {list && list.total > 0 && (
        <section class="panel">
          <VirtualTable
            label="Resources"
            head={["type", "name", "group", numeric("clients"), numeric("bytes"), "version", "place"]}
            total={list.total}
            rows={list.items}
            from={shown.from}
            onWindow={onWindow}
            keyOf={(r: ServedResource) => `${r.type} ${r.group} ${r.name}`}
            row={(r: ServedResource) => (
              <>
                <td>
                  <a href={linkTo("resources", [r.type])}>{r.type}</a>
                </td>
                <td class="mono wide">
                  <ResourceLink of={r}>{r.name}</ResourceLink>
                </td>
                <td>{r.group}</td>
                <td class="number">{r.clients && <Share of={r} />}</td>
                <td class="number">{number(r.bytes)}</td>
                <td class="mono">{r.version.slice(0, 12)}</td>
                <td class="mono">{r.place}</td>
              </>
            )}
            open={(r: ServedResource) => go(linkTo("resources", [r.type, r.name]))}
          />
        </section>
      )}
    </>
  );
}

// How many subscribers have accepted a resource.
function Share({ of: r }: { of: ServedResource }) {
  const total = r.clients?.total ?? 0;
  const synced = r.clients?.by.SYNCED ?? 0;
  const nacked = r.clients?.by.NACKED ?? 0;
  return <span class={nacked ? "bad" : ""}>{synced === total ? number(total) : `${number(synced)} of ${number(total)}`}</span>;
}

export function Resource({ type, name }: { type: string; name: string }) {
  const group = route.value.query.get("group") ?? "";
  const { data, failure } = useLoad("/api/v1/resources/{type}/{name}", [type, name], { group, subscribers: true });
  return (
    <>
      <h1>
        {type} <span class="mono">{short(name)}</span>
      </h1>
      <p class="sub">
        <Links of={{ type, name, group: group || data?.items[0]?.group }} />
      </p>
      <Problem failure={failure} />
      {data?.items.map((r) => (
        <div key={r.group} class="stack">
          <Graph type={r.type} name={r.name} group={r.group} />
          <div class="grid">
            <Panel
              title={`Group ${r.group}`}
              note={r.place}
              link={<a href={linkTo("diff", [], { to: "files", type: r.type, name: r.name, group: r.group })}>compare with the files</a>}
            >
              <Content of={r} />
            </Panel>
            <div class="stack">
              <Panel title="Served">
                <dl>
                  <dt>version</dt>
                  <dd class="mono">{r.version.slice(0, 16)}</dd>
                  <dt>size</dt>
                  <dd>{number(r.bytes)} bytes</dd>
                  <dt>accepted by</dt>
                  <dd>
                    <Share of={r} />
                  </dd>
                </dl>
              </Panel>
              <Subscribers of={r} />
              <History of={r} />
            </div>
          </div>
        </div>
      ))}
    </>
  );
}

// The content, with the line of each field in its file.
function Content({ of: r }: { of: ServedResource }) {
  const { data } = useLoad("/api/v1/resources/{type}/{name}", [r.type, r.name], { group: r.group, places: true }, changes);
  const lines = data?.items[0]?.version === r.version ? (data.items[0].lines ?? {}) : {};
  const file = r.place?.replace(/:\d+:\d+$/, "") ?? "";
  const label = `Content of ${r.type} ${short(r.name)}`;
  const text = JSON.stringify(r.body, null, 2) ?? "";
  if (text.length > 200_000) return <Code label={label}>{text}</Code>; // its lines would be too many elements
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: without the focus, only a mouse can scroll
    <section class="code" tabIndex={0} aria-label={label}>
      <pre>
        {linesOf(r.body).map((l, i) => {
          const line = lines[l.path];
          return (
            <span key={i} class="line" data-line={line ?? ""} title={line ? `${l.path} at ${file}:${line}` : undefined}>
              {l.text}
              {"\n"}
            </span>
          );
        })}
      </pre>
    </section>
  );
}

function Subscribers({ of: r }: { of: ServedResource }) {
  const nodes = r.clients?.nodes ?? [];
  return (
    <Panel title="Subscribers" note={r.clients && `${number(r.clients.total)} ${units(r.clients.total, "client")}`}>
      {!nodes.length && <Empty>No client subscribes to it.</Empty>}
      <ul class="refs">
        {nodes.map((n) => (
          <li key={n.node}>
            <StateTag state={n.state} />{" "}
            <a class="mono" href={linkTo("clients", [n.node], { type: r.type, name: r.name })}>
              {short(n.node)}
            </a>
          </li>
        ))}
        {(r.clients?.total ?? 0) > nodes.length && <li>and {number((r.clients?.total ?? 0) - nodes.length)} more</li>}
      </ul>
    </Panel>
  );
}

// The revisions of the store that changed a resource. Without a store there is no history.
function History({ of: r }: { of: ServedResource }) {
  const { data } = useLoad("/api/v1/revisions", [], { type: r.type, name: r.name, limit: 20 }, changes);
  if (!data) return null;
  return (
    <Panel title="History">
      {!data.items.length && <Empty>No kept revision has changed it.</Empty>}
      <ul class="refs">
        {data.items.map((v) => (
          <li key={v.revision}>
            <a class="mono" href={linkTo("revisions", [v.revision])}>
              {v.revision}
            </a>{" "}
            {short(v.message)} <span class="age">{v.author}</span> <Ago at={v.time} />{" "}
            <a class="info" href={linkTo("diff", [], { from: `rev:${v.revision}`, type: r.type, name: r.name, to: "served" })}>
              to now
            </a>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
