// How fast the clients accepted the last commits, and which clients lack the newest one.
import type { Propagation as Answer, Spread } from "../api";
import { useLoad } from "../load";
import { Ago, Empty, NodeLink, Panel, Problem, StateTag } from "../parts";
import { linkTo, route } from "../route";
import { numeric, Table } from "../table";
import { number, short, units } from "../words";

const unsettled = "state:refused state:stale state:waiting state:sent state:not_sent";

export function Propagation() {
  const { data, failure } = useLoad("/api/v1/propagation");
  const chosen = route.value.query.get("revision");
  const spread = data?.items.find((s) => String(s.revision) === chosen) ?? data?.items[0];
  return (
    <>
      <h1>Propagation</h1>
      <p class="sub">How fast the clients of this server accepted its last commits.</p>
      <Problem failure={failure} />
      {data && (
        <div class="grid">
          <div class="stack">
            {spread ? <Curve of={spread} /> : <Empty>No commit since the start of the server.</Empty>}
            <Missing of={data} />
          </div>
          <Commits all={data.items} chosen={spread?.revision} />
        </div>
      )}
    </>
  );
}

// A duration in words, such as "40 ms" or "1.9 s".
export function took(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  return `${Math.round(ms / 60_000)} min`;
}

const width = 800; // of the picture, in its own units
const height = 200;
const left = 44;
const right = 28;
const bottom = 24;

function Curve({ of: s }: { of: Spread }) {
  const most = Math.max(10, ...s.curve.map((p) => p.ms));
  const x = (ms: number) => left + ((width - left - right) * Math.log(Math.max(1, ms))) / Math.log(most);
  const y = (n: number) => 10 + (height - bottom - 10) * (1 - n / Math.max(1, s.clients));
  const steps = s.curve.map((p) => `H${x(p.ms).toFixed(1)}V${y(p.clients).toFixed(1)}`).join("");
  const ticks = [1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000].filter((t) => t <= most);
  const text = `${number(s.clients)} ${units(s.clients, "client")} accepted it, half of them after ${took(s.p50_ms)}, 99 % after ${took(s.p99_ms)}`;
  return (
    <Panel title={`Commit ${s.revision}`} note={s.clients ? text : "no client has accepted it yet"}>
      {s.clients > 0 && (
        <svg class="curve" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={text}>
          {ticks.map((t) => (
            <g key={t}>
              <line x1={x(t)} x2={x(t)} y1={10} y2={height - bottom} />
              <text x={x(t)} y={height - 8}>
                {took(t)}
              </text>
            </g>
          ))}
          <line x1={left} x2={width - right} y1={y(0)} y2={y(0)} />
          <text class="end" x={left - 6} y={y(s.clients) + 4}>
            {number(s.clients)}
          </text>
          <text class="end" x={left - 6} y={y(0) + 4}>
            0
          </text>
          <path d={`M${left} ${y(0)}${steps}H${width - right}`} />
          {(["p50_ms", "p99_ms"] as const).map((q) => (
            <g key={q} class={q}>
              <line x1={x(s[q])} x2={x(s[q])} y1={10} y2={height - bottom} />
            </g>
          ))}
        </svg>
      )}
      <div class="numbers">
        <span>
          <b>{number(s.clients)}</b> accepted
        </span>
        {s.clients > 0 && (
          <>
            <span>
              <b>{took(s.p50_ms)}</b> p50
            </span>
            <span>
              <b>{took(s.p99_ms)}</b> p99
            </span>
            <span>
              <b>{took(s.last_ms)}</b> last
            </span>
          </>
        )}
      </div>
    </Panel>
  );
}

function Missing({ of: d }: { of: Answer }) {
  const states = ["NACKED", "STALE", "WAITING", "SENT", "NOT_SENT"];
  const n = states.reduce((sum, s) => sum + (d.clients.by[s] ?? 0), 0);
  return (
    <Panel
      title="Clients that lack the newest configuration"
      note={`${number(n)} of ${number(d.clients.connected)}`}
      link={n > 0 && <a href={linkTo("clients", [], { q: unsettled })}>all {number(n)}</a>}
    >
      {!n && <Empty>{d.clients.connected ? "All clients have accepted it." : "No client is connected."}</Empty>}
      {d.missing.length > 0 && (
        <div class="scroll">
          <Table label="Missing clients" columns={["node", "state", "type", "reason"]}>
            {d.missing.map((m) => (
              <tr key={m.path ?? m.node}>
                <td class="mono wide">
                  <NodeLink node={m.node || (m.path ?? "")}>{short(m.node || (m.path ?? ""))}</NodeLink>
                </td>
                <td>
                  <StateTag state={m.state} />
                </td>
                <td>{m.type && <a href={linkTo("clients", [m.node || (m.path ?? "")], { type: m.type })}>{m.type}</a>}</td>
                <td class="text">{short(m.why ?? "")}</td>
              </tr>
            ))}
          </Table>
        </div>
      )}
    </Panel>
  );
}

function Commits({ all, chosen }: { all: Spread[]; chosen: number | undefined }) {
  return (
    <Panel title="Last commits">
      <Table label="Last commits" columns={["commit", "when", numeric("clients"), numeric("p50"), numeric("p99")]}>
        {all.map((s) => (
          <tr key={s.revision} aria-selected={s.revision === chosen}>
            <td>
              <a href={linkTo("propagation", [], { revision: s.revision })}>{s.revision}</a>
            </td>
            <td>
              <Ago at={s.at} />
            </td>
            <td class="number">{number(s.clients)}</td>
            <td class="number">{s.clients > 0 && took(s.p50_ms)}</td>
            <td class="number">{s.clients > 0 && took(s.p99_ms)}</td>
          </tr>
        ))}
      </Table>
    </Panel>
  );
}
