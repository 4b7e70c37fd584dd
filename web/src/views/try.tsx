import { useSignal } from "@preact/signals";
import { type Check, post } from "../api";
import { changes } from "../live";
import { useAsk, useLoad } from "../load";
import { Empty, Panel, Problem } from "../parts";
import { route, setQuery } from "../route";
import { Table } from "../table";
import { number, units } from "../words";
import { ImpactPanel } from "./impact";
import { ChangesTable } from "./revisions";

const example = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: backend
type: STRICT_DNS
connect_timeout: 1s`;

// Checks pasted resources. The server keeps nothing of them.
export function Try() {
  const text = useSignal("");
  const { data: groups } = useLoad("/api/v1/groups", [], {}, changes);
  const { data, failure, busy, ask } = useAsk<Check>();
  const group = route.value.query.get("group") ?? "default";
  const names = groups?.items.map((g) => g.name) ?? [];
  return (
    <>
      <h1>Try an edit</h1>
      <p class="sub">Paste resources to see their findings and the clients that would get them. The server neither stores nor logs the text.</p>
      <div class="grid">
        <div class="stack">
          <section class="panel">
            <form
              class="paste"
              onSubmit={(e) => {
                e.preventDefault();
                void ask(() => post("/api/v1/check", [], { text: text.value, group }));
              }}
            >
              <textarea rows={18} spellcheck={false} aria-label="Resources" placeholder={example} onInput={(e) => (text.value = e.currentTarget.value)} />
              <div>
                <label>
                  group{" "}
                  <select onChange={(e) => setQuery({ group: e.currentTarget.value })}>
                    {[...new Set([group, ...names])].sort().map((name) => (
                      <option key={name} value={name} selected={name === group}>
                        {name}
                      </option>
                    ))}
                  </select>
                </label>{" "}
                <button type="submit" disabled={busy}>
                  Check
                </button>
              </div>
            </form>
          </section>
          <Problem failure={failure} />
          <div class="stack" aria-live="polite">
            {data && <Findings of={data} />}
          </div>
        </div>
        <div class="stack">
          {data?.impact && <ImpactPanel impact={data.impact} title="Whom it would reach" />}
          {data && data.errors > 0 && (
            <Panel title="Whom it would reach">
              <Empty>No client: the server would not load it.</Empty>
            </Panel>
          )}
        </div>
      </div>
    </>
  );
}

function Findings({ of: c }: { of: Check }) {
  return (
    <>
      <Panel title="Findings" note={`${number(c.errors)} ${units(c.errors, "error")}, ${number(c.warnings)} ${units(c.warnings, "warning")}`}>
        {!c.findings.length && <Empty>The text has no findings.</Empty>}
        {c.findings.length > 0 && (
          <div class="scroll">
            <Table label="Findings" columns={["place", "code", "finding"]}>
              {c.findings.map((f, i) => (
                <tr key={i}>
                  <td class="mono">{f.line && `${f.line}:${f.column}`}</td>
                  <td>
                    <span class={`tag ${f.warning ? "warn" : "bad"}`}>{f.code}</span>
                  </td>
                  <td class="text">
                    {f.path && <span class="mono">{f.path}: </span>}
                    {f.message} {f.hint && <span class="age">{f.hint}</span>}
                  </td>
                </tr>
              ))}
            </Table>
          </div>
        )}
      </Panel>
      {c.errors === 0 && (
        <Panel title="Changes" note={c.unchanged ? `${number(c.unchanged)} ${units(c.unchanged, "resource")} would not change` : undefined}>
          {!c.total && <Empty>The group has these resources already.</Empty>}
          {c.changes.length > 0 && <ChangesTable items={c.changes} />}
          {c.total > c.changes.length && <Empty>and {number(c.total - c.changes.length)} more</Empty>}
        </Panel>
      )}
    </>
  );
}
