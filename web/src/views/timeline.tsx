import type { Event } from "../api";
import { useEvents } from "../live";
import { lookOfEvent, now, Panel } from "../parts";
import { duration, wordOf } from "../words";

const span = 5 * 60_000; // ms
const width = 1000;

// The last minutes of a client: a lane for each type, a mark for each event.
export function Timeline({ node }: { node: string }) {
  const until = now.value;
  const all = useEvents({ node }, (e) => e.node === node).all.filter((e) => until - Date.parse(e.at) < span);
  const lanes = [...new Set(all.map(laneOf))].sort();
  if (!lanes.length) return null;
  const at = (e: Event) => width - ((until - Date.parse(e.at)) / span) * width;
  return (
    <Panel title="Conversation" note="last 5 minutes">
      <div class="lanes" role="img" aria-label={`${all.length} events of ${lanes.join(", ")} in 5 minutes`}>
        {lanes.map((lane) => (
          <div key={lane} class="lane">
            <span>{lane}</span>
            <svg viewBox={`0 0 ${width} 24`} preserveAspectRatio="none" aria-hidden="true">
              <line x1="0" x2={width} y1="12" y2="12" />
            </svg>
            {all
              .filter((e) => laneOf(e) === lane)
              .map((e) => (
                <i
                  key={e.id}
                  class={lookOfEvent(e.kind)}
                  style={{ left: `calc(56px + (100% - 56px) * ${at(e) / width})` }}
                  title={`${wordOf(e.kind)} ${duration(until - Date.parse(e.at))} ago ${e.text ?? ""}`}
                />
              ))}
          </div>
        ))}
      </div>
      <p class="legend">
        <span class="info">sent</span> <span class="ok">accepted</span> <span class="bad">refused</span>
      </p>
    </Panel>
  );
}

const laneOf = (e: Event) => e.type || "stream";
