import { computed } from "@preact/signals";
import type { Endpoint } from "../api";
import { batches } from "../live";
import { useLoad } from "../load";
import { Empty, now, Problem } from "../parts";
import { linkTo, route } from "../route";
import { numeric, Table } from "../table";
import { duration, number, units } from "../words";

// Changes after events, and each 5 s, because the approaching end of a lease is no event.
const often = computed(() => batches.value + Math.floor(now.value / 5000));

export function Endpoints() {
  const { data, failure } = useLoad("/api/v1/endpoints", [], {}, often);
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
          <Table label="Clusters" columns={["cluster", "group", numeric("endpoints"), "leases"]}>
            {soonFirst(data.items, (c) => Boolean(c.end_soon)).map((c) => (
              <tr key={`${c.group} ${c.cluster}`}>
                <td class="mono wide">
                  <a href={linkTo("endpoints", [c.cluster], { group: c.group })}>{c.cluster}</a>
                </td>
                <td>{c.group}</td>
                <td class={`number ${c.total ? "" : "warn"}`}>{c.total ? number(c.total) : "all removed or expired"}</td>
                <td>
                  {c.end_soon !== undefined && (
                    <span class="tag warn">
                      {number(c.end_soon)} {c.end_soon === 1 ? "ends" : "end"} soon
                    </span>
                  )}
                </td>
              </tr>
            ))}
          </Table>
        </section>
      )}
    </>
  );
}

// Leases that end soon come first. The others keep their order, so a renewal moves no row.
const soonFirst = <T,>(all: T[], soon: (x: T) => boolean) => [...all.filter(soon), ...all.filter((x) => !soon(x))];

// The duration of a lease, and when it ends if its owner does not renew it.
function Lease({ of: e }: { of: Endpoint }) {
  if (!e.ttl) return <span class="age">none</span>;
  if (!e.expires) return <>{e.ttl}</>;
  const end = new Date(e.expires);
  return (
    <>
      <span class={e.ends_soon ? "tag warn" : ""} title={`${end.toLocaleString()}, unless the lease is renewed`}>
        ends in {duration(end.getTime() - now.value)}
      </span>{" "}
      <span class="age">of {e.ttl}</span>
    </>
  );
}

const healths: Record<string, string> = { HEALTHY: "ok", UNHEALTHY: "bad", TIMEOUT: "bad", DRAINING: "warn", DEGRADED: "warn" };

export function Cluster({ cluster }: { cluster: string }) {
  const group = route.value.query.get("group") ?? "";
  const { data, failure } = useLoad("/api/v1/endpoints/{cluster}", [cluster], { group }, often);
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
              {soonFirst(c.endpoints, (e) => Boolean(e.ends_soon)).map((e) => (
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
                  <td>
                    <Lease of={e} />
                  </td>
                </tr>
              ))}
            </Table>
          )}
        </section>
      ))}
    </>
  );
}
