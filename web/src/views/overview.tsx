import { request, type Status } from "../api";
import { useAsk, useLoad } from "../load";
import { Ago, Empty, Links, lookOf, Panel, Problem } from "../parts";
import { linkTo } from "../route";
import { stateKey } from "../search";
import { numeric, Table } from "../table";
import { number, units, wordOf } from "../words";
import { ReloadAction } from "./commands";
import { type Line, problemsOf } from "./problems";

// The states of clients in the order of the bar.
const bar = ["SYNCED", "NACKED", "STALE", "WAITING", "SENT", "NOT_SENT", "IDLE"] as const;

export function Overview() {
  const { data: s, failure } = useLoad("/api/v1/status", [], { replicas: true });
  if (!s) return <Problem failure={failure} />;
  const lines = problemsOf(s);
  return (
    <>
      <Problem failure={failure} />
      <h1>{headline(s, lines)}</h1>
      <p class="sub">
        {s.config.store ? `${s.config.store.url}, revision ${s.config.store.revision || "none"}` : s.server.dir || s.config.upstream?.url || s.server.replica}
        {s.config.at && (
          <>
            {" · last change "}
            <Ago at={s.config.at} /> ago
          </>
        )}
        {s.config.store?.author && ` by ${s.config.store.author}`}
        {s.config.store?.message && `, “${s.config.store.message}”`} <Links of={{}} />{" "}
        {!s.config.upstream && (!s.config.store || s.config.store.writer) && s.server.dir && <ReloadAction />}
      </p>
      <div class="grid">
        <div class="stack">
          <Panel title="Needs attention" note="worst first">
            {lines.length ? (
              <div class="rows">
                {lines.map((l) => (
                  <Row key={`${l.tag} ${l.text} ${l.quote}`} line={l} />
                ))}
              </div>
            ) : (
              <Empty>Nothing is wrong.</Empty>
            )}
          </Panel>
        </div>
        <div class="stack">
          <Clients s={s} />
          <Groups several={Boolean(s.replicas)} />
          {s.replicas && <Servers all={s.replicas} />}
          <Server s={s} />
        </div>
      </div>
    </>
  );
}

function headline(s: Status, lines: Line[]): string {
  const clients = `${number(s.clients.by.SYNCED ?? 0)} of ${number(s.clients.connected)} clients are synced`;
  const problems = lines.filter((l) => l.look !== "info").length;
  if (problems) return `${problems} ${problems === 1 ? "problem" : "problems"}, ${clients}`;
  return s.clients.connected ? `No problems, ${clients}` : "No problems, no clients are connected";
}

function Row({ line: l }: { line: Line }) {
  const content = (
    <>
      <div class={`count ${l.look}`}>
        {l.count !== undefined && number(l.count)}
        {l.unit && <small>{l.unit}</small>}
      </div>
      <div class="what">
        <p>
          <span class={`tag ${l.look}`}>{l.tag}</span> {l.text}
        </p>
        {l.quote && (
          <p class="quote" title={l.quote}>
            {l.quote}
          </p>
        )}
        {l.places?.slice(0, 3).map((p) => (
          <p key={p} class="place">
            {p}
          </p>
        ))}
      </div>
      <span class="since">
        {l.since && (
          <>
            since <Ago at={l.since} />
          </>
        )}
      </span>
    </>
  );
  return l.href ? <a href={l.href}>{content}</a> : <div>{content}</div>;
}

function Clients({ s }: { s: Status }) {
  const by = bar.map((state) => ({ state, n: s.clients.by[state] ?? 0 })).filter((x) => x.n);
  return (
    <Panel title="Clients" link={<a href="/clients">{number(s.clients.connected)} connected</a>}>
      {by.length ? (
        <>
          <div class="numbers">
            {by.map(({ state, n }) => (
              <a key={state} href={linkTo("clients", [], { q: stateKey(state) })}>
                <b class={lookOf(state)}>{number(n)}</b>
                {wordOf(state)}
              </a>
            ))}
          </div>
          <div class="bar" aria-hidden="true">
            {by.map(({ state, n }) => (
              <i key={state} class={lookOf(state)} style={{ flexGrow: n }} />
            ))}
          </div>
        </>
      ) : (
        <Empty>
          No client is connected. <code>chancery bootstrap envoy</code> prints the bootstrap of an Envoy.
        </Empty>
      )}
    </Panel>
  );
}

function Groups({ several }: { several: boolean }) {
  const { data, failure } = useLoad("/api/v1/groups");
  if (!data || data.items.length < 2) return <Problem failure={failure} />;
  return (
    <Panel title="Groups" note={several && "with the clients of this server"}>
      <Table label="Groups" columns={["group", numeric("clients"), "state"]}>
        {data.items.map((g) => {
          const nacked = g.clients.by.NACKED ?? 0;
          return (
            <tr key={g.name}>
              <td class="cut">
                <a href={linkTo("clients", [], { q: `group:${g.name}` })}>{g.name}</a>
              </td>
              <td class="number">{number(g.clients.connected)}</td>
              <td>
                {nacked ? (
                  <span class="tag bad">{number(nacked)} refused</span>
                ) : g.rejected ? (
                  <span class="tag bad">load rejected</span>
                ) : (
                  <span class="tag ok">ok</span>
                )}
              </td>
            </tr>
          );
        })}
      </Table>
    </Panel>
  );
}

function Servers({ all }: { all: NonNullable<Status["replicas"]> }) {
  return (
    <Panel title="Servers">
      <Table label="Servers" columns={["server", numeric("clients"), "revision"]}>
        {all.map((r) => (
          <tr key={r.id}>
            <td class="mono cut" title={r.host}>
              {r.id} {r.asked && <span class="age">this page</span>}
            </td>
            <td class="number">{r.clients && number(r.clients.connected)}</td>
            <td>
              <span class={`tag ${r.error ? "bad" : r.trouble || r.rejected ? "warn" : "ok"}`}>{r.error ? "no answer" : (r.revision ?? "ok")}</span>
            </td>
          </tr>
        ))}
      </Table>
    </Panel>
  );
}

function Server({ s }: { s: Status }) {
  return (
    <Panel title="Server">
      <dl>
        <dt>version</dt>
        <dd>{s.server.version}</dd>
        <dt>xDS</dt>
        <dd class="mono">{s.server.xds || "–"}</dd>
        <dt>configuration</dt>
        <dd>
          <a href="/resources">
            {number(s.config.resources)} {units(s.config.resources, "resource")}
          </a>
          {s.config.files > 0 && ` in ${number(s.config.files)} files`}
        </dd>
        <dt>started</dt>
        <dd>
          <Ago at={s.server.since} /> ago
        </dd>
        <dt>bug report</dt>
        <dd>
          <Bundle />
        </dd>
      </dl>
    </Panel>
  );
}

// Downloads the archive for a bug report. A link cannot send the token.
function Bundle() {
  const { failure, busy, ask } = useAsk<void>();
  const download = async () => {
    const answer = await request("/api/v1/bundle");
    const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1] ?? "chancery-bundle.tar.gz";
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await answer.blob()), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <>
      <button type="button" disabled={busy} title="status, clients, refusals, groups and events; no content of resources" onClick={() => void ask(download)}>
        Download
      </button>
      <Problem failure={failure} />
    </>
  );
}
