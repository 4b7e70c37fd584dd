import { useLoad } from "../load";
import { Empty, Problem } from "../parts";
import { linkTo, route } from "../route";
import { numeric, Table } from "../table";
import { number, units } from "../words";

export function Endpoints() {
  const { data, failure } = useLoad("/api/v1/endpoints");
  return (
    <>
      <h1>Registered endpoints</h1>
      <p class="sub">
        {data && `${number(data.items.length)} ${units(data.items.length, "cluster")}. Registered endpoints replace those of files or revisions.`}
      </p>
      {failure?.status !== 403 && <Problem failure={failure} />}
      {failure?.status === 403 && (
        <Empty>
          This server does not accept endpoints. <code>chancery serve --endpoints</code> does.
        </Empty>
      )}
      {data && !data.items.length && (
        <Empty>
          No endpoint is registered. <code>chancery endpoints put CLUSTER ADDRESS:PORT</code> registers one.
        </Empty>
      )}
      {data && data.items.length > 0 && (
        <section class="panel scroll">
          <Table label="Clusters" columns={["cluster", "group", numeric("endpoints")]}>
            {data.items.map((c) => (
              <tr key={`${c.group} ${c.cluster}`}>
                <td class="mono wide">
                  <a href={linkTo("endpoints", [c.cluster], { group: c.group })}>{c.cluster}</a>
                </td>
                <td>{c.group}</td>
                <td class={`number ${c.total ? "" : "warn"}`}>{c.total ? number(c.total) : "all removed or expired"}</td>
              </tr>
            ))}
          </Table>
        </section>
      )}
    </>
  );
}

const healths: Record<string, string> = { HEALTHY: "ok", UNHEALTHY: "bad", TIMEOUT: "bad", DRAINING: "warn", DEGRADED: "warn" };

export function Cluster({ cluster }: { cluster: string }) {
  const group = route.value.query.get("group") ?? "";
  const { data, failure } = useLoad("/api/v1/endpoints/{cluster}", [cluster], { group });
  return (
    <>
      <h1>
        Endpoints of <span class="mono">{cluster}</span>
      </h1>
      <p class="sub">{group && `group ${group}`}</p>
      <Problem failure={failure} />
      {data?.items.map((c) => (
        <section class="panel scroll" key={c.group}>
          {!c.endpoints?.length && <Empty>All endpoints are removed or expired. The server sends none, also if files have some.</Empty>}
          {c.endpoints && c.endpoints.length > 0 && (
            <Table label={`Endpoints in group ${c.group}`} columns={["endpoint", "address", "health", "zone", numeric("priority"), numeric("weight"), "lease"]}>
              {c.endpoints.map((e) => (
                <tr key={e.id}>
                  <td class="mono wide">{e.id}</td>
                  <td class="mono">
                    {e.address.includes(":") ? `[${e.address}]` : e.address}:{e.port}
                  </td>
                  <td>
                    <span class={`tag ${healths[e.health ?? ""] ?? "idle"}`}>{(e.health || "unknown").toLowerCase()}</span>
                  </td>
                  <td>{[e.locality?.region, e.locality?.zone, e.locality?.sub_zone].filter(Boolean).join("/")}</td>
                  <td class="number">{e.priority ?? 0}</td>
                  <td class="number">{e.weight || 1}</td>
                  <td>{e.ttl ? e.ttl : <span class="age">none</span>}</td>
                </tr>
              ))}
            </Table>
          )}
        </section>
      ))}
    </>
  );
}
