import { signal, useSignal } from "@preact/signals";
import { type JSX, render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { replica, replicaBefore, signedOut, token } from "./api";
import { connection, follow } from "./live";
import { go, linkTo, route, setQuery, start } from "./route";
import "./style.css";
import { Client } from "./views/client";
import { Clients } from "./views/clients";
import { Diff } from "./views/diff";
import { Cluster, Endpoints } from "./views/endpoints";
import { Events } from "./views/events";
import { Fleet } from "./views/fleet";
import { Groups } from "./views/groups";
import { Overview } from "./views/overview";
import { Resource, Resources } from "./views/resources";
import { Revision, Revisions } from "./views/revisions";
import { Rollout, Rollouts } from "./views/rollouts";
import { Try } from "./views/try";

const helpOpen = signal(false);

// The views: a row each. The first segment of the path selects one, and the view gets the other segments.
const views: { path: string; title: string; key: string; view: (parts: string[]) => JSX.Element }[] = [
  { path: "", title: "Overview", key: "o", view: () => <Overview /> },
  { path: "clients", title: "Clients", key: "c", view: ([node]) => (node === undefined ? <Clients /> : <Client node={node} />) },
  {
    path: "resources",
    title: "Resources",
    key: "r",
    view: ([type, name]) => (type !== undefined && name !== undefined ? <Resource type={type} name={name} /> : <Resources type={type ?? ""} />),
  },
  { path: "groups", title: "Groups", key: "g", view: () => <Groups /> },
  { path: "diff", title: "Differences", key: "d", view: () => <Diff /> },
  { path: "revisions", title: "Revisions", key: "v", view: ([rev]) => (rev === undefined ? <Revisions /> : <Revision rev={rev} />) },
  { path: "rollouts", title: "Rollouts", key: "l", view: ([id]) => (id === undefined ? <Rollouts /> : <Rollout id={id} />) },
  { path: "endpoints", title: "Endpoints", key: "n", view: ([cluster]) => (cluster === undefined ? <Endpoints /> : <Cluster cluster={cluster} />) },
  { path: "fleet", title: "Fleet", key: "f", view: () => <Fleet /> },
  { path: "try", title: "Try", key: "t", view: () => <Try /> },
  { path: "events", title: "Events", key: "e", view: () => <Events /> },
];

function View() {
  const [path = "", ...parts] = route.value.path;
  const known = views.find((v) => v.path === path);
  if (known) return known.view(parts);
  return (
    <>
      <h1>Not found</h1>
      <p class="sub">This page has no view {path}.</p>
    </>
  );
}

function Shell() {
  const view = route.value.path[0] ?? "";
  useEffect(() => {
    document.title = [...route.value.path].reverse().concat("Chancery").join(" · ");
  }, [route.value]);
  return (
    <>
      <header class="top">
        <b>Chancery</b>
        <nav>
          {views.map(({ path, title }) => (
            <a key={path} href={linkTo(path)} aria-current={view === path ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <Search view={view} />
        <span class={`connection ${connection.value}`} role="status">
          {connection.value === "out" ? "signed out" : connection.value}
        </span>
      </header>
      <main>
        {connection.value === "away" && !signedOut.value && <p class="banner">The server does not answer. This page shows its last answers.</p>}
        {replicaBefore.value && (
          <p class="banner">
            Another server of the store answers: {replica.value}. Before, it was {replicaBefore.value}.{" "}
            <button type="button" onClick={() => (replicaBefore.value = "")}>
              Close
            </button>
          </p>
        )}
        {signedOut.value ? <SignIn /> : <View />}
      </main>
      {helpOpen.value && <Help />}
    </>
  );
}

// The search of the views that have one. On other views it opens the clients.
function Search({ view }: { view: string }) {
  const searchable = view === "clients" || view === "events";
  const text = (searchable && route.value.query.get("q")) || "";
  const input = useRef<HTMLInputElement>(null);
  return (
    <search class="search">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          const q = input.current?.value ?? "";
          if (searchable && route.value.path.length === 1) setQuery({ q });
          else go(linkTo("clients", [], { q }));
        }}
      >
        <input
          ref={input}
          type="search"
          value={text}
          aria-label="Search"
          placeholder={view === "events" ? "kind:nack type:lds web" : "group:edge state:nacked type:lds web"}
        />
        <kbd>/</kbd>
      </form>
    </search>
  );
}

// The token form. Over plain text, a token may be sent only within this machine.
function SignIn() {
  const text = useSignal("");
  const safe = location.protocol === "https:" || /^(localhost|127\.|\[::1\])/.test(location.hostname);
  if (!safe) {
    return (
      <>
        <h1>This server needs a token</h1>
        <p class="sub">This connection is not encrypted, so the page does not ask for the token. Use TLS, or a tunnel to this machine.</p>
      </>
    );
  }
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        token.value = text.value.trim();
        signedOut.value = false;
        follow();
      }}
    >
      <h1>This server needs a token</h1>
      <p class="sub">The token is in the file of --admin-token-file. The page forgets it when you close or reload it.</p>
      <input type="password" aria-label="Token" autocomplete="off" onInput={(e) => (text.value = e.currentTarget.value)} />{" "}
      <button type="submit">Sign in</button>
    </form>
  );
}

const keys = [
  ["/", "search"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ...views.map(({ key, title }) => [`g ${key}`, title.toLowerCase()]),
  ["?", "this list"],
];

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={() => (helpOpen.value = false)} aria-label="Keys">
      <dl>
        {keys.map(([key, text]) => (
          <>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{text}</dd>
          </>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}

let afterG = false;

addEventListener("keydown", (e) => {
  if ((e.target as Element).closest("input, textarea, select, dialog") || e.metaKey || e.ctrlKey || e.altKey) return;
  const jump = afterG && views.find((v) => v.key === e.key);
  afterG = e.key === "g" && !jump;
  if (jump) go(linkTo(jump.path));
  else if (e.key === "?") helpOpen.value = true;
  else if (e.key === "/") {
    e.preventDefault();
    document.querySelector<HTMLInputElement>(".search input")?.select();
  }
});

start();
follow();
render(<Shell />, document.getElementById("page") as HTMLElement);
