// Buttons for changes, for callers whose roles allow them. The server decides each change itself.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { session } from "./api";
import { useAsk } from "./load";
import { Problem } from "./parts";

export type Role = "operate" | "commit";
const ranks = ["view", "operate", "commit"];

// Whether the caller has a role for all these groups.
export function may(role: Role, groups: string[]): boolean {
  const grants = session.value?.roles.filter((g) => ranks.indexOf(g.role) >= ranks.indexOf(role)) ?? [];
  if (grants.some((g) => !g.groups)) return true;
  return groups.length > 0 && groups.every((name) => grants.some((g) => g.groups?.some((p) => matches(p, name))));
}

// Whether a name matches a pattern: * is a word, and ** any text.
export function matches(pattern: string, name: string): boolean {
  const parts = pattern.split(/(\*\*|\*|\\.)/).map((p) => {
    if (p === "**") return ".*";
    if (p === "*") return "[\\p{L}\\p{N}_-]+";
    return p.replace(/^\\(.)$/, "$1").replace(/[^\p{L}\p{N}_]/gu, (c) => `\\u{${c.codePointAt(0)?.toString(16)}}`);
  });
  return new RegExp(`^${parts.join("")}$`, "su").test(name);
}

interface Props {
  label: string;
  needs: Role;
  groups: string[]; // that the change concerns; none: all
  effect: ComponentChildren; // of the change, in a sentence
  possible?: boolean; // false: there is no button; an open dialog stays, because it may have the result of this change
  reason?: boolean; // the change needs a reason
  run(reason: string): Promise<string>; // makes the change, and returns its result
}

export function Action(p: Props) {
  const open = useSignal(false);
  if (!may(p.needs, p.groups)) return null;
  return (
    <>
      {p.possible !== false && (
        <button type="button" onClick={() => (open.value = true)}>
          {p.label}
        </button>
      )}
      {open.value && <Confirm {...p} close={() => (open.value = false)} />}
    </>
  );
}

function Confirm({ label, effect, reason, run, close }: Props & { close(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const text = useSignal("");
  const { data, failure, busy, ask } = useAsk<string>();
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class="confirm" onClose={close} aria-label={label}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void ask(() => run(text.value.trim()));
        }}
      >
        <h2>{label}</h2>
        <p>{effect}</p>
        {reason && data === undefined && (
          <input required maxLength={500} aria-label="Reason" placeholder="reason, for the history" onInput={(e) => (text.value = e.currentTarget.value)} />
        )}
        <div aria-live="polite">
          <Problem failure={failure} />
          {data !== undefined && <p class="ok">{data}</p>}
        </div>
        <p class="buttons">
          {data === undefined && (
            <button type="submit" disabled={busy}>
              {label}
            </button>
          )}
          <button type="button" onClick={close}>
            {data === undefined ? "Cancel" : "Close"}
          </button>
        </p>
      </form>
    </dialog>
  );
}
