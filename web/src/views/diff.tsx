// The differences of two sets of resources. The server compares them; the URL has the two sets.
import type { Difference, Diff as Differences, FieldValue } from "../api";
import { changes } from "../live";
import { useLoad } from "../load";
import { ChangeTag, Empty, Panel, Problem, ResourceLink } from "../parts";
import { go, linkTo, route } from "../route";
import { number, short, units } from "../words";
import { ImpactPanel } from "./impact";

const fields = ["from", "to", "type", "name", "group"] as const;

export function Diff() {
  const query = Object.fromEntries(fields.map((f) => [f, route.value.query.get(f) ?? ""])) as Record<(typeof fields)[number], string>;
  const ready = query.to !== "";
  return (
    <>
      <h1>Differences</h1>
      <Form key={route.value.query.toString()} query={query} />
      <Versions query={query} />
      {ready ? <Result query={query} /> : <Empty>Select two sets of resources, such as two revisions or two clients.</Empty>}
    </>
  );
}

function Form({ query }: { query: Record<string, string> }) {
  const { data } = useLoad("/api/v1/revisions", [], { limit: 20 }, changes);
  return (
    <form
      class="fields"
      onSubmit={(e) => {
        e.preventDefault();
        const form = new FormData(e.currentTarget);
        go(linkTo("diff", [], Object.fromEntries(fields.map((f) => [f, String(form.get(f) ?? "").trim()]))));
      }}
    >
      {fields.map((f) => (
        <label key={f}>
          {f}
          <input name={f} value={query[f]} list={f === "from" || f === "to" ? "sets" : undefined} placeholder={placeholders[f]} autocomplete="off" />
        </label>
      ))}
      <datalist id="sets">
        <option value="served" />
        <option value="files" />
        {data?.items.map((r) => (
          <option key={r.revision} value={`rev:${r.revision}`}>
            {short(r.message)}
          </option>
        ))}
      </datalist>
      <button type="submit">Compare</button>
    </form>
  );
}

const placeholders: Record<string, string> = { from: "served", to: "files, rev:r412, client:NODE", type: "all", name: "all", group: "all" };

// Links between the versions of a resource on a client.
function Versions({ query: q }: { query: Record<string, string> }) {
  const [kind, node] = split(q.from ?? "");
  const [other, same] = split(q.to ?? "");
  const kinds = ["wanted", "sent", "accepted"];
  if (node !== same || !kinds.includes(kind) || !kinds.includes(other)) return null;
  const pairs = [
    ["accepted", "sent"],
    ["sent", "wanted"],
    ["accepted", "wanted"],
  ] as const;
  return (
    <nav class="tabs" aria-label="Versions">
      {pairs.map(([from, to]) => (
        <a
          key={from + to}
          href={linkTo("diff", [], { ...q, from: `${from}:${node}`, to: `${to}:${node}` })}
          aria-current={kind === from && other === to ? "page" : undefined}
        >
          {from} → {to}
        </a>
      ))}
      <a href={linkTo("clients", [node], { type: q.type, name: q.name })}>why?</a>
    </nav>
  );
}

function split(side: string): [string, string] {
  const at = side.indexOf(":");
  return at < 0 ? [side, ""] : [side.slice(0, at), side.slice(at + 1)];
}

function Result({ query }: { query: Record<string, string> }) {
  const { data: d, failure } = useLoad("/api/v1/diff", [], { ...query, limit: 200 }, changes);
  return (
    <>
      <Problem failure={failure} />
      {failure?.errors.map((e) => (
        <p key={e} class="quote">
          {short(e)}
        </p>
      ))}
      {d && (
        <div class={d.impact ? "grid" : "stack"}>
          <Panel title={summary(d)} note={<Sides of={d} />}>
            {!d.total && <Empty>No resource differs.</Empty>}
            {d.items.map((x) => (
              <One key={`${x.type} ${x.group} ${x.name}`} of={x} />
            ))}
            {d.total > d.items.length && <Empty>and {number(d.total - d.items.length)} more</Empty>}
          </Panel>
          {d.impact && <ImpactPanel impact={d.impact} title="Whom it would reach" />}
        </div>
      )}
    </>
  );
}

const summary = (d: Differences) =>
  d.total ? [`${number(d.changed)} changed`, `${number(d.added)} added`, `${number(d.removed)} removed`].join(", ") : "No difference";

const Sides = ({ of: d }: { of: Differences }) => (
  <>{[d.from, d.to].map((s) => `${short(s.of)}${s.note ? ` (${short(s.note)})` : ""}: ${number(s.resources)} ${units(s.resources, "resource")}`).join(" → ")}</>
);

function One({ of: x }: { of: Difference }) {
  return (
    <section class="difference" aria-label={`${x.kind} ${x.type} ${short(x.name)}`}>
      <h3>
        <ChangeTag change={x.kind} /> {x.type}{" "}
        <span class="mono">{x.kind === "removed" ? short(x.name) : <ResourceLink of={x}>{short(x.name)}</ResourceLink>}</span>{" "}
        <span class="age">
          {x.group} {x.place}
        </span>
        {x.drains && (
          <span class="tag warn" title={x.drains.filter_chains?.join(", ")}>
            {x.drains.whole ? "drains all connections" : "drains connections"}
          </span>
        )}
      </h3>
      {x.secret ? <p class="quote">secret changed, or content that cannot be shown</p> : x.fields?.map((f) => <Field key={f.path} of={f} />)}
    </section>
  );
}

function Field({ of: f }: { of: FieldValue }) {
  return (
    <div class="field">
      <span class="path">{f.path}</span>
      {f.from && <del>{f.from}</del>}
      {f.to && <ins>{f.to}</ins>}
    </div>
  );
}
