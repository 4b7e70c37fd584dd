// The references of a resource, as a graph. It is a list of links for readers of the screen, and without the library.
import { useEffect, useState } from "preact/hooks";
import type { ReferenceGraph, ReferenceNode } from "../api";
import { useLoad } from "../load";
import { Empty, Panel, Problem } from "../parts";
import { linkTo } from "../route";
import { number, short, units } from "../words";
import type { Layout, Point } from "./layout";

export function Graph({ type, name, group }: { type: string; name: string; group: string }) {
  const { data, failure } = useLoad("/api/v1/references/{type}/{name}", [type, name], { group, subscribers: true });
  const layout = useLayout(data);
  return (
    <Panel
      title="References"
      note={
        data &&
        `${number(data.nodes.length)} ${units(data.nodes.length, "resource")}${data.cut ? ", the graph is cut: select a resource nearer to the end" : ""}`
      }
    >
      <Problem failure={failure} />
      {data && data.nodes.length < 2 && <Empty>It refers to no other resource, and no resource refers to it.</Empty>}
      {data && data.nodes.length > 1 && <Picture of={data} layout={layout} />}
      {data && <Missing of={data} />}
    </Panel>
  );
}

// The places of the references to missing resources.
function Missing({ of: g }: { of: ReferenceGraph }) {
  const lines = g.edges.flatMap((e) => {
    const [from, to] = [g.nodes[e.from], g.nodes[e.to]];
    return from && to?.missing && e.place ? [{ from, to, place: e.place }] : [];
  });
  if (!lines.length) return null;
  return (
    <ul class="refs">
      {lines.map(({ from, to, place }) => (
        <li key={`${place} ${to.type} ${to.name}`}>
          {from.type} <span class="mono">{short(from.name)}</span> refers to {to.type} <span class="mono">{short(to.name)}</span>, which is missing
          {to.reason && `: ${to.reason}`} <span class="place">{place}</span>
        </li>
      ))}
    </ul>
  );
}

// The layout of a graph. It is made again only if the structure differs, because the counts change often.
function useLayout(g: ReferenceGraph | undefined): Layout | undefined {
  const shape = g ? `${g.nodes.length} ${g.edges.map((e) => `${e.from}-${e.to}`)}` : "";
  const [made, set] = useState<{ shape: string; layout: Layout }>();
  useEffect(() => {
    if (!g || g.nodes.length < 2) return;
    let gone = false;
    void import("./layout").then(({ place }) => {
      if (!gone) set({ shape, layout: place(g.nodes.length, g.edges) });
    });
    return () => {
      gone = true;
    };
  }, [shape]);
  return made?.shape === shape ? made.layout : undefined;
}

function Picture({ of: g, layout }: { of: ReferenceGraph; layout: Layout | undefined }) {
  const size = layout && { width: `${layout.width}px`, height: `${layout.height}px` };
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: without the focus, only a mouse can scroll
    <section class="graph" tabIndex={0} aria-label="Graph of references">
      <div style={size}>
        {layout && (
          <svg aria-hidden="true" width={layout.width} height={layout.height}>
            {layout.edges.map((points, i) => (
              <path key={i} class={g.nodes[g.edges[i]?.to ?? 0]?.missing ? "bad" : ""} d={curve(points)} />
            ))}
          </svg>
        )}
        <ul class={layout ? "placed" : ""}>
          {g.nodes.map((n, i) => {
            const at = layout?.nodes[i];
            return (
              <li key={`${n.type} ${n.group} ${n.name}`} style={at && { left: `${at.x}px`, top: `${at.y}px` }}>
                <Node of={n} first={i === 0} group={g.groups.length > 1 ? (n.group ?? "") : ""} to={referred(g, i)} />
              </li>
            );
          })}
        </ul>
      </div>
    </section>
  );
}

function Node({ of: n, first, group, to }: { of: ReferenceNode; first: boolean; group: string; to: string }) {
  const nacked = n.clients?.by.NACKED ?? 0;
  const total = n.clients?.total ?? 0;
  const state = n.missing
    ? "missing"
    : n.bootstrap
      ? "of the bootstrap"
      : nacked
        ? `${number(nacked)} of ${number(total)} refuse it`
        : total
          ? `${number(n.clients?.by.SYNCED ?? 0)} of ${number(total)} accepted`
          : n.clients
            ? "no client"
            : "";
  const look = n.missing ? "missing" : nacked ? "bad" : "";
  return (
    <a class={`node ${look}`} href={linkTo("resources", [n.type, n.name], { group })} aria-current={first ? "true" : undefined} title={short(n.name)}>
      <span>
        <b>{n.type}</b> <span class="state">{state}</span>
        {n.cut && <span class="state"> +</span>}
      </span>
      <span class="mono">{short(n.name)}</span>
      {(to || n.reason) && (
        <span class="hidden">
          {n.reason} {to && `refers to ${to}`}
        </span>
      )}
    </a>
  );
}

// The names of the resources to which a node refers, in words.
function referred(g: ReferenceGraph, from: number): string {
  const to = g.edges.filter((e) => e.from === from).map((e) => g.nodes[e.to]);
  return to.flatMap((n) => (n ? [`${n.type} ${short(n.name)}${n.missing ? ", which is missing" : ""}`] : [])).join("; ");
}

// A smooth line through the points of an edge.
function curve(points: Point[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let d = `M${first.x} ${first.y}`;
  let from = first;
  for (const to of rest) {
    const middle = (from.x + to.x) / 2;
    d += `C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
    from = to;
  }
  return d;
}
