import type { ServedResource } from "../api";
import { useLoad } from "../load";
import { Code, Empty, Links, Panel, Problem, ResourceLink } from "../parts";
import { go, linkTo, route } from "../route";
import { useShown, useWindow, VirtualTable } from "../table";
import { number, short } from "../words";
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
            head={["type", "name", "group", "clients", "bytes", "version", "place"]}
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
            <Panel title={`Group ${r.group}`} note={r.place}>
              <Code label={`Content of ${r.type} ${r.name}`}>{JSON.stringify(r.body, null, 2)}</Code>
            </Panel>
            <div class="stack">
              <Panel title="Served">
                <dl>
                  <dt>version</dt>
                  <dd class="mono">{r.version.slice(0, 16)}</dd>
                  <dt>size</dt>
                  <dd>{number(r.bytes)} bytes</dd>
                  <dt>subscribers</dt>
                  <dd>
                    <Share of={r} />
                  </dd>
                </dl>
              </Panel>
            </div>
          </div>
        </div>
      ))}
    </>
  );
}
