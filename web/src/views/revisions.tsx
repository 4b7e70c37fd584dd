import type { ChangedItem, Revision as Rev } from "../api";
import { changes } from "../live";
import { useLoad } from "../load";
import { Ago, ChangeTag, Empty, Panel, Problem, ResourceLink } from "../parts";
import { linkTo } from "../route";
import { numeric, Table } from "../table";
import { number, units } from "../words";
import { RestoreAction } from "./commands";
import { ImpactPanel } from "./impact";

const most = 200; // revisions in the list

export const RevisionLink = ({ of }: { of: string }) => (
  <a class="mono" href={linkTo("revisions", [of])}>
    {of}
  </a>
);

export const NoStore = ({ title }: { title: string }) => (
  <>
    <h1>{title}</h1>
    <Empty>
      This server has no store of revisions, so the files have the history. <code>chancery serve --store</code> serves from a store.
    </Empty>
  </>
);

export function Revisions() {
  const { data, failure } = useLoad("/api/v1/revisions", [], { limit: most }, changes);
  const { data: status } = useLoad("/api/v1/status", [], {}, changes);
  if (failure?.status === 404) return <NoStore title="Revisions" />;
  const served = status?.config.store?.revision;
  return (
    <>
      <h1>Revisions</h1>
      <p class="sub">{data && (data.items.length === most ? `the newest ${most}` : `${data.items.length} kept`)}</p>
      <Problem failure={failure} />
      {data && !data.items.length && (
        <Empty>
          The store has no revision yet. <code>chancery apply</code> commits a directory.
        </Empty>
      )}
      {data && data.items.length > 0 && (
        <section class="panel scroll">
          <Table label="Revisions" columns={["revision", "when", "author", "message", "changes", "source", "state"]}>
            {data.items.map((r) => (
              <tr key={r.revision}>
                <td>
                  <RevisionLink of={r.revision} />
                </td>
                <td>
                  <Ago at={r.time} />
                </td>
                <td class="cut">{r.author}</td>
                <td class="text">{r.message}</td>
                <td class="mono">
                  <Changed of={r} />
                </td>
                <td class="mono cut">{r.source}</td>
                <td>
                  <Marks of={r} served={served} />
                </td>
              </tr>
            ))}
          </Table>
        </section>
      )}
    </>
  );
}

function Changed({ of: r }: { of: Rev }) {
  if (!r.set && !r.removed) return <span class="age">none</span>;
  return (
    <>
      {r.set > 0 && <span title={`${number(r.set)} set`}>~{number(r.set)}</span>}{" "}
      {r.removed > 0 && <span title={`${number(r.removed)} removed`}>−{number(r.removed)}</span>}
    </>
  );
}

// What the servers do with a revision.
function Marks({ of: r, served }: { of: Rev; served?: string | undefined }) {
  return (
    <>
      {r.revision === served && <span class="tag ok">served</span>}
      {r.holds?.map((h) => (
        <span key={h.group} class="tag info" title={h.message}>
          {h.group} frozen
        </span>
      ))}
      {r.restores && (
        <span class="age">
          restores <RevisionLink of={r.restores} />
        </span>
      )}
    </>
  );
}

// The changes of a revision, or of a text that is not committed.
export function ChangesTable({ items }: { items: ChangedItem[] }) {
  return (
    <div class="scroll">
      <Table label="Changes" columns={["change", "type", "name", "group", numeric("bytes"), "place"]}>
        {items.map((c) => (
          <tr key={`${c.group} ${c.type} ${c.name}`}>
            <td>
              <ChangeTag change={c.change} />
            </td>
            <td>{c.type || "group"}</td>
            <td class="mono wide">
              {c.type && c.name && c.change !== "removed" ? (
                <ResourceLink of={{ type: c.type, name: c.name }}>{c.name}</ResourceLink>
              ) : (
                c.name || (c.type ? "version of the type" : "definition")
              )}
            </td>
            <td class="cut">{c.group}</td>
            <td class="number">{c.before && c.bytes && c.before !== c.bytes ? `${number(c.before)} → ${number(c.bytes)}` : number(c.bytes || c.before)}</td>
            <td class="mono cut">{c.place}</td>
          </tr>
        ))}
      </Table>
    </div>
  );
}

export function Revision({ rev }: { rev: string }) {
  const { data: d, failure } = useLoad("/api/v1/revisions/{rev}/changes", [rev], {}, changes);
  if (!d) {
    return (
      <>
        <h1>{rev}</h1>
        <Problem failure={failure} />
      </>
    );
  }
  const r = d.revision;
  return (
    <>
      <h1>
        {r.revision} <span class="age">{r.message}</span>
      </h1>
      <p class="sub">
        <Ago at={r.time} /> ago by {r.author} · {number(r.items)} {units(r.items, "item")} <RestoreAction of={r} />
      </p>
      <Problem failure={failure} />
      {d.held?.map((h) => (
        <p key={h.group} class="problem">
          Group {h.group} is {h.rollout ? "in a rollout" : "frozen"} at <RevisionLink of={h.revision} />, so {number(h.changes)} of these changes{" "}
          {h.changes === 1 ? "is" : "are"} not served to all its clients{h.message ? `: “${h.message}”` : "."}
        </p>
      ))}
      <div class="grid">
        <Panel
          title="Changes"
          note={d.base && `since ${d.base}`}
          link={d.base && <a href={linkTo("diff", [], { from: `rev:${d.base}`, to: `rev:${r.revision}` })}>field by field</a>}
        >
          {d.unknown && <Empty>The changes are unknown: {d.unknown}.</Empty>}
          {!d.unknown && !d.total && <Empty>It changed nothing.</Empty>}
          {d.items.length > 0 && <ChangesTable items={d.items} />}
          {d.total > d.items.length && <Empty>and {number(d.total - d.items.length)} more</Empty>}
        </Panel>
        <div class="stack">
          {d.impact && <ImpactPanel impact={d.impact} title="Whom it reaches" />}
          <Panel title="Revision">
            <dl>
              <dt>when</dt>
              <dd>{new Date(r.time).toLocaleString()}</dd>
              <dt>author</dt>
              <dd>{r.author}</dd>
              {r.source && (
                <>
                  <dt>source</dt>
                  <dd class="mono">{r.source}</dd>
                </>
              )}
              <dt>set</dt>
              <dd>{number(r.set)}</dd>
              <dt>removed</dt>
              <dd>{number(r.removed)}</dd>
              {r.restores && (
                <>
                  <dt>restores</dt>
                  <dd>
                    <RevisionLink of={r.restores} />
                  </dd>
                </>
              )}
            </dl>
          </Panel>
        </div>
      </div>
    </>
  );
}
