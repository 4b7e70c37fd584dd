// The problems of a status, worst first. The server decides what a problem is; this gives each a line.
import type { State, Status } from "../api";
import { linkTo } from "../route";
import { stateKey } from "../search";
import { units } from "../words";

export interface Line {
  look: "bad" | "warn" | "info";
  tag: string;
  text: string;
  count?: number;
  unit?: string; // of the count
  quote?: string; // the text of a client or of a check
  places?: string[];
  since?: string;
  href?: string;
}

const nacked: State = "NACKED";

export function problemsOf(s: Status): Line[] {
  const c = s.config;
  const lines: Line[] = [];
  if (c.rejected) {
    lines.push({
      look: "bad",
      tag: "load rejected",
      text: "The server keeps the last good configuration.",
      count: c.rejected.errors.length,
      unit: units(c.rejected.errors.length, "error"),
      quote: c.rejected.errors[0] ?? "",
      places: c.rejected.errors.slice(1),
      since: c.rejected.since,
    });
  }
  for (const r of s.rejected_groups ?? []) {
    lines.push({
      look: "bad",
      tag: "load rejected",
      text: `Group ${r.group} keeps its last good configuration.`,
      count: r.errors.length,
      unit: units(r.errors.length, "error"),
      quote: r.errors[0] ?? "",
      since: r.since,
      href: linkTo("groups"),
    });
  }
  for (const r of s.refusals) {
    const names = r.resources.map((x) => x.name);
    lines.push({
      look: "bad",
      tag: "refused",
      text: names.length ? `${r.type} ${names.slice(0, 3).join(", ")}${names.length > 3 ? ` and ${names.length - 3} more` : ""}` : r.type,
      count: r.clients,
      unit: units(r.clients, "client"),
      quote: r.error,
      places: r.resources.flatMap((x) => (x.place ? [x.place] : [])),
      since: r.since,
      href:
        r.clients === 1 && r.nodes[0]
          ? linkTo("clients", [r.nodes[0]], { type: r.type, name: names[0] })
          : linkTo("clients", [], { q: `${stateKey(nacked)} type:${r.type.toLowerCase()}` }),
    });
  }
  for (const t of s.troubles) {
    lines.push({
      look: "warn",
      tag: t.code,
      text: t.node ? `${t.node}: ${t.text}` : t.text,
      since: t.since,
      ...(t.node && { href: linkTo("clients", [t.node]) }),
    });
  }
  if (c.store?.error) lines.push({ look: "bad", tag: "store", text: c.store.error, ...(c.store.since && { since: c.store.since }) });
  if (c.store?.writer?.error) lines.push({ look: "bad", tag: "store", text: `The directory is not committed: ${c.store.writer.error}` });
  for (const r of c.store?.rolled_back ?? [])
    lines.push({
      look: "bad",
      tag: "rolled back",
      text: `Rollout ${r.rollout} of ${r.groups.join(", ")} to ${r.revision}: ${r.why}`,
      since: r.since,
      href: linkTo("rollouts", [r.rollout]),
    });
  for (const h of c.store?.holds ?? []) {
    lines.push({
      look: "info",
      tag: h.rollout ? "rollout" : "frozen",
      text: h.rollout
        ? `Group ${h.group} gets ${h.next}, step ${h.step}.`
        : `Group ${h.group} is served from ${h.revision}${h.message ? `: “${h.message}”` : "."}`,
      ...(h.at && { since: h.at }),
      href: linkTo("rollouts", h.rollout ? [h.rollout] : []),
    });
  }
  if (c.store?.went_back)
    lines.push({
      look: "warn",
      tag: "store went back",
      text: `The etcd went back from revision ${c.store.went_back.from} to ${c.store.went_back.to}. All was read again.`,
      since: c.store.went_back.at,
    });
  for (const r of s.replicas ?? []) {
    const why = r.error || r.trouble || r.unwritten || r.rejected?.errors[0];
    if (why) lines.push({ look: r.error ? "bad" : "warn", tag: "server", text: `${r.host || r.id}: ${why}`, ...(r.seen && { since: r.seen }) });
  }
  if (s.unsure) lines.push({ look: "warn", tag: "servers", text: s.unsure });
  if (c.upstream && !c.upstream.connected && !c.upstream.idle)
    lines.push({
      look: "bad",
      tag: "upstream",
      text: `Not connected to ${c.upstream.url}: ${c.upstream.error ?? "no answer yet"}`,
      ...(c.upstream.since && { since: c.upstream.since }),
    });
  if (c.upstream?.exceeded) lines.push({ look: "bad", tag: "upstream", text: c.upstream.exceeded });
  if (c.upstream?.refused)
    lines.push({
      look: "bad",
      tag: "upstream",
      text: "Resources of the upstream are refused. The relay serves their last good versions.",
      count: c.upstream.refused,
      unit: units(c.upstream.refused, "resource"),
    });
  for (const e of c.earlier ?? []) {
    lines.push({
      look: "warn",
      tag: "quarantine",
      text: `${e.type} ${e.name} is refused in its newest version. These clients get the version that others accepted.`,
      count: e.clients,
      unit: units(e.clients, "client"),
      href: linkTo("resources", [e.type, e.name]),
    });
  }
  if (c.removals)
    lines.push({
      look: "warn",
      tag: "removal delayed",
      text: `The files lack these resources. The server removes them in time, if they are still missing.`,
      count: c.removals.resources,
      unit: units(c.removals.resources, "resource"),
    });
  for (const e of s.emptied ?? [])
    lines.push({ look: "warn", tag: "no endpoints", text: `All registered endpoints of cluster ${e.cluster} in group ${e.group} are removed or expired.` });
  for (const t of s.turned_away) {
    lines.push({
      look: "warn",
      tag: t.kind === "denied" ? "denied" : "handshake",
      text: `${t.node ? `${t.node} from ${t.from}` : t.from}: ${t.text}`,
      count: t.times,
      unit: units(t.times, "time"),
      since: t.at,
    });
  }
  for (const w of c.warnings ?? []) {
    lines.push({
      look: "warn",
      tag: w.code,
      text: w.text,
      ...(w.type !== undefined && w.name !== undefined && { href: linkTo("resources", [w.type, w.name], { group: w.group }) }),
    });
  }
  const rank = { bad: 0, warn: 1, info: 2 };
  return lines.sort((a, b) => rank[a.look] - rank[b.look]);
}
