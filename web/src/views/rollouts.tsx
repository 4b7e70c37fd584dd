import type { Rollout as Data, Hold } from "../api";
import { changes } from "../live";
import { useLoad } from "../load";
import { Ago, Empty, NodeLink, Panel, Problem, ResourceLink } from "../parts";
import { linkTo } from "../route";
import { Table } from "../table";
import { duration, number, units } from "../words";
import { RolloutActions } from "./commands";
import { NoStore, RevisionLink } from "./revisions";

const looks: Record<string, string> = { running: "info", paused: "warn", done: "ok", "rolled back": "bad", aborted: "warn" };
const ended = (r: Data) => r.phase !== "running" && r.phase !== "paused";

const Phase = ({ of: r }: { of: Data }) => <span class={`tag ${looks[r.phase] ?? "idle"}`}>{r.phase}</span>;

export function Rollouts() {
  const { data, failure } = useLoad("/api/v1/rollouts");
  const { data: status } = useLoad("/api/v1/status", [], {}, changes);
  if (failure?.status === 404) return <NoStore title="Rollouts" />;
  return (
    <>
      <h1>Rollouts</h1>
      <p class="sub">A rollout moves a frozen group to another revision, a part of its nodes at a time.</p>
      <Problem failure={failure} />
      <div class="grid">
        <Panel title="Rollouts" note="newest first">
          {data && !data.items.length && (
            <Empty>
              No rollout has begun. <code>chancery freeze GROUP</code> keeps a group at its revision, and <code>chancery rollout start REVISION</code> moves it
              on.
            </Empty>
          )}
          {data && data.items.length > 0 && (
            <div class="scroll">
              <Table label="Rollouts" columns={["rollout", "phase", "to", "step", "accepted", "began", "author", "message"]}>
                {data.items.map((r) => (
                  <tr key={r.id}>
                    <td>
                      <a class="mono" href={linkTo("rollouts", [r.id])}>
                        {r.id}
                      </a>
                    </td>
                    <td>
                      <Phase of={r} />
                    </td>
                    <td>
                      <RevisionLink of={r.revision} />
                    </td>
                    <td>
                      {r.step} of {r.steps?.length ?? 0}
                    </td>
                    <td>{!ended(r) && `${number(r.acked)} of ${number(r.clients)}`}</td>
                    <td>
                      <Ago at={r.began} />
                    </td>
                    <td class="cut">{r.author}</td>
                    <td class="text">{r.message}</td>
                  </tr>
                ))}
              </Table>
            </div>
          )}
        </Panel>
        <Frozen holds={status?.config.store?.holds ?? []} />
      </div>
    </>
  );
}

function Frozen({ holds }: { holds: Hold[] }) {
  return (
    <Panel title="Frozen groups">
      {!holds.length && <Empty>No group is frozen. The servers serve the newest revision.</Empty>}
      {holds.map((h) => (
        <dl key={h.group}>
          <dt>group</dt>
          <dd>
            <a href={linkTo("clients", [], { q: `group:${h.group}` })}>{h.group}</a>
          </dd>
          <dt>at</dt>
          <dd>
            <RevisionLink of={h.revision} />
            {h.next && (
              <>
                , some nodes at <RevisionLink of={h.next} />
              </>
            )}
          </dd>
          <dt>since</dt>
          <dd>
            <Ago at={h.at} /> {h.author && `by ${h.author}`}
          </dd>
          {h.message && (
            <>
              <dt>why</dt>
              <dd>{h.message}</dd>
            </>
          )}
          {h.rollout && (
            <>
              <dt>rollout</dt>
              <dd>
                <a href={linkTo("rollouts", [h.rollout])}>{h.rollout}</a>, step {h.step}
              </dd>
            </>
          )}
        </dl>
      ))}
    </Panel>
  );
}

// The nodes that a step adds.
function nodesOf(s: NonNullable<Data["steps"]>[number]): string {
  if (s.percent === 100) return "all nodes";
  const labels = Object.entries(s.labels ?? {}).map(([k, v]) => `${k}=${v}`);
  return [
    ...(s.percent ? [`${s.percent} % of the nodes`] : []),
    ...(labels.length ? [`nodes with ${labels.join(" and ")}`] : []),
    ...(s.groups?.length ? [`nodes of ${s.groups.join(", ")}`] : []),
  ].join(", or ");
}

export function Rollout({ id }: { id: string }) {
  const { data, failure } = useLoad("/api/v1/rollouts/{id}", [id]);
  const r = data?.items[0];
  if (!r) {
    return (
      <>
        <h1>{id}</h1>
        <Problem failure={failure} />
      </>
    );
  }
  const over = ended(r);
  const groups = Object.entries(r.from ?? {});
  const bake = duration(Number.parseFloat(r.bake) * 1000);
  return (
    <>
      <h1>
        Rollout <span class="mono">{r.id}</span> <Phase of={r} />
      </h1>
      <p class="sub">
        to <RevisionLink of={r.revision} /> · began <Ago at={r.began} /> ago by {r.author} · {r.message} <RolloutActions of={r} />
      </p>
      <Problem failure={failure} />
      {r.why && <p class={r.phase === "done" ? "sub" : "problem"}>{r.why}</p>}
      <div class="grid">
        <div class="stack">
          <Panel title="Steps" note={`each must be healthy for ${bake}, with ${r.min_acked} % of its clients`}>
            <ol class="chain" aria-label="Steps">
              {r.steps?.map((s, i) => {
                const n = i + 1;
                const here = n === r.step;
                const done = n < r.step || (here && r.phase === "done");
                return (
                  <li key={n} class={done ? "" : here && over ? "broken" : here ? "current" : "unknown"}>
                    <b>step {n}</b>
                    <span>
                      {nodesOf(s)}
                      {here && !over && <p>{r.waits_for || `The clients accept it. It must stay so for ${bake}.`}</p>}
                    </span>
                    <span class="age">{here ? over ? r.phase : <Ago at={r.since} /> : done ? "done" : ""}</span>
                  </li>
                );
              })}
            </ol>
          </Panel>
          {r.refusal && <Refused by={r.refusal} />}
        </div>
        <div class="stack">
          {!over && (
            <Panel title="Answers" note={r.nodes}>
              <div class="numbers">
                <span>
                  <b>{number(r.clients)}</b>
                  {units(r.clients, "client")}
                </span>
                <span>
                  <b class="ok">{number(r.acked)}</b>accepted
                </span>
                <a href={linkTo("clients", [], { q: groups.length === 1 ? `state:refused group:${groups[0]?.[0]}` : "state:refused" })}>
                  <b class={r.refused ? "bad" : ""}>{number(r.refused)}</b>refused
                </a>
                <span>
                  <b>{number(r.waiting)}</b>waiting
                </span>
              </div>
              <div class="bar" aria-hidden="true">
                {r.acked > 0 && <i class="ok" style={{ flexGrow: r.acked }} />}
                {r.refused > 0 && <i class="bad" style={{ flexGrow: r.refused }} />}
                {r.waiting > 0 && <i class="idle" style={{ flexGrow: r.waiting }} />}
              </div>
            </Panel>
          )}
          <Panel title="Groups">
            <dl>
              {groups.map(([group, from]) => (
                <>
                  <dt>{group}</dt>
                  <dd>
                    from <RevisionLink of={from} /> to <RevisionLink of={r.revision} />
                  </dd>
                </>
              ))}
            </dl>
          </Panel>
        </div>
      </div>
    </>
  );
}

// The refusal that ended a rollout.
function Refused({ by: f }: { by: NonNullable<Data["refusal"]> }) {
  return (
    <Panel title="Who refused">
      <dl>
        <dt>client</dt>
        <dd>
          <NodeLink node={f.node} />
        </dd>
        <dt>resource</dt>
        <dd>
          {f.name ? <ResourceLink of={{ type: f.type, name: f.name }} /> : f.type}
          {f.place && <p class="place">{f.place}</p>}
          {f.among?.length ? ` one of ${f.among.join(", ")}${f.of && f.of > f.among.length ? ` and ${number(f.of - f.among.length)} more` : ""}` : ""}
        </dd>
        <dt>text</dt>
        <dd class="mono">{f.cause}</dd>
      </dl>
    </Panel>
  );
}
