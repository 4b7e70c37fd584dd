import type { Impact } from "../api";
import { Panel } from "../parts";
import { linkTo } from "../route";
import { number, units } from "../words";

// The connected clients that get changed resources, and the size of the responses.
export function ImpactPanel({ impact: i, title }: { impact: Impact; title: string }) {
  return (
    <Panel title={title}>
      <dl>
        <dt>clients</dt>
        <dd>
          {number(i.clients)} of {number(i.connected)}
          {i.unknown > 0 && `, ${number(i.unknown)} did not answer`}
        </dd>
        {i.groups.map((g) => (
          <>
            <dt>group {g.group}</dt>
            <dd>
              <a href={linkTo("clients", [], { q: `group:${g.group}` })}>
                {number(g.clients)} {units(g.clients, "client")}
              </a>
            </dd>
          </>
        ))}
        {i.types.map((t) => (
          <>
            <dt>{t.type}</dt>
            <dd>
              {number(t.pushes)} {units(t.pushes, "response")}, about {number(t.bytes)} bytes
            </dd>
          </>
        ))}
      </dl>
    </Panel>
  );
}
