// The changes that views offer.
import { Action, may } from "../actions";
import { post, type Revision, type Rollout } from "../api";
import { linkTo } from "../route";
import { number, units } from "../words";

type Command = Awaited<ReturnType<typeof post<"/api/v1/clients/{node}/resync">>>;

function sent(c: Command): string {
  const n = c.types?.reduce((sum, t) => sum + t.resources + (t.released ?? 0), 0) ?? 0;
  const over = c.over ? `, spread over ${c.over}` : "";
  if (c.command === "resync" && !c.over) return `${number(n)} ${units(n, "resource")} sent again.`;
  return `${number(c.streams)} ${units(c.streams, "stream")}${over}.`;
}

const everywhere = { replicas: true };

export function ClientActions({ node, groups, connected }: { node: string; groups: string[]; connected: boolean }) {
  const mine = groups.find((g) => may("operate", [g])) ?? groups[0]; // the caller needs the role for one of them
  const of = (label: string, effect: string, run: () => Promise<Command>) => (
    <Action label={label} needs="operate" possible={connected} groups={mine === undefined ? [] : [mine]} effect={effect} run={() => run().then(sent)} />
  );
  return (
    <span class="actions">
      {of("Resync", `${node} gets all its resources again, also those that it refused.`, () => post("/api/v1/clients/{node}/resync", [node], {}, everywhere))}
      {of("Disconnect", `The streams of ${node} end. It keeps its configuration, and connects again.`, () =>
        post("/api/v1/clients/{node}/disconnect", [node], {}, everywhere),
      )}
    </span>
  );
}

export function GroupActions({ group, clients: n }: { group: string; clients: number }) {
  const whom = `${number(n)} ${units(n, "client")} of group ${group} on this server, and those of other servers`;
  return (
    <span class="actions">
      <Action
        label="Resync"
        needs="operate"
        groups={[group]}
        effect={`All clients of the group get their resources again, spread over time: ${whom}.`}
        run={() => post("/api/v1/groups/{group}/resync", [group], {}, everywhere).then(sent)}
      />
      <Action
        label="Disconnect"
        needs="operate"
        groups={[group]}
        effect={`The streams of all clients of the group end, spread over time, and they connect again: ${whom}.`}
        run={() => post("/api/v1/groups/{group}/disconnect", [group], {}, everywhere).then(sent)}
      />
    </span>
  );
}

export function RolloutActions({ of: r }: { of: Rollout }) {
  const from = Object.entries(r.from ?? {});
  const groups = from.map(([g]) => g);
  const last = r.step === r.steps?.length;
  const answers = `${number(r.acked)} of ${number(r.clients)} ${units(r.clients, "client")} have accepted it, and ${number(r.refused)} refused it`;
  const phase = (list: { items: Rollout[] }) => `The rollout is ${list.items[0]?.phase}.`;
  const goes = r.phase === "running" || r.phase === "paused";
  return (
    <span class="actions">
      <Action
        label="Promote"
        needs="commit"
        possible={goes}
        groups={groups}
        reason
        effect={
          last ? `The rollout ends, and ${r.revision} stays for all nodes. ${answers}.` : `The nodes of step ${r.step + 1} get ${r.revision} now. ${answers}.`
        }
        run={(message) => post("/api/v1/rollouts/{id}/promote", [r.id], { message }).then(phase)}
      />
      <Action
        label="Pause"
        needs="operate"
        possible={r.phase === "running"}
        groups={groups}
        effect={`The rollout stays at step ${r.step} until somebody continues it.`}
        run={() => post("/api/v1/rollouts/{id}/pause", [r.id], {}).then(phase)}
      />
      <Action
        label="Resume"
        needs="commit"
        possible={r.phase === "paused"}
        groups={groups}
        effect={`The rollout continues at step ${r.step}.`}
        run={() => post("/api/v1/rollouts/{id}/resume", [r.id], {}).then(phase)}
      />
      <Action
        label="Abort"
        needs="commit"
        possible={goes}
        groups={groups}
        effect={`All nodes get what they had before: ${from.map(([g, rev]) => `group ${g} ${rev}`).join(", ")}. ${number(r.clients)} ${units(r.clients, "client")} have ${r.revision} now.`}
        run={() => post("/api/v1/rollouts/{id}/abort", [r.id], {}).then(phase)}
      />
    </span>
  );
}

export function RestoreAction({ of: r }: { of: Revision }) {
  return (
    <span class="actions">
      <Action
        label="Restore"
        needs="commit"
        groups={[]}
        reason
        effect={
          <>
            A new revision gets the content of {r.revision}: all {number(r.items)} {units(r.items, "item")}. The servers send it to their clients, except for
            frozen groups. <a href={linkTo("diff", [], { from: "rev:head", to: `rev:${r.revision}` })}>See the differences from the newest revision</a>
          </>
        }
        run={(message) =>
          post("/api/v1/revisions/{rev}/restore", [r.revision], { message }).then((c) =>
            c.revision === c.base ? "The newest revision has this content already." : `${c.revision} sets ${number(c.set)} and removes ${number(c.removed)}.`,
          )
        }
      />
    </span>
  );
}

export function ReloadAction() {
  return (
    <Action
      label="Reload"
      needs="operate"
      groups={[]}
      effect="The server reads its files now, and sends changes to the clients."
      run={() =>
        post("/api/v1/reload", [], { allow_mass_delete: false }).then((r) =>
          r.errors?.length ? `Nothing was loaded: ${r.errors[0]}` : `${number(r.files)} files: ${number(r.set)} resources set, ${number(r.removed)} removed.`,
        )
      }
    />
  );
}
