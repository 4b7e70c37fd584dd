import { signal, useSignal } from "@preact/signals";
import { type JSX, options, render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Failure, loadSession, replica, replicaBefore, session, signedOut, signIn, signInFailure, signOut, urlOf } from "./api";
import { connection, follow, unfollow } from "./live";
import { Problem } from "./parts";
import { go, linkTo, route, setQuery, start } from "./route";
import "./style.css";
import { focusRow } from "./table";
import { Client } from "./views/client";
import { Clients } from "./views/clients";
import { Diff } from "./views/diff";
import { Cluster, Endpoints } from "./views/endpoints";
import { Events } from "./views/events";
import { Fleet } from "./views/fleet";
import { Groups } from "./views/groups";
import { Overview } from "./views/overview";
import { Propagation } from "./views/propagation";
import { Resource, Resources } from "./views/resources";
import { Revision, Revisions } from "./views/revisions";
import { Rollout, Rollouts } from "./views/rollouts";
import { Try } from "./views/try";
import { visible } from "./words";

const helpOpen = signal(false);

// The views: a row each. The first segment of the path selects one, and the view gets the other segments.
// The rare ones are in a menu.
const views: { path: string; title: string; key: string; rare?: true; view: (parts: string[]) => JSX.Element }[] = [
  { path: "", title: "Overview", key: "o", view: () => <Overview /> },
  { path: "clients", title: "Clients", key: "c", view: ([node]) => (node === undefined ? <Clients /> : <Client node={node} />) },
  {
    path: "resources",
    title: "Resources",
    key: "r",
    view: ([type, name]) => (type !== undefined && name !== undefined ? <Resource type={type} name={name} /> : <Resources type={type ?? ""} />),
  },
  { path: "groups", title: "Groups", key: "g", view: () => <Groups /> },
  { path: "propagation", title: "Propagation", key: "p", rare: true, view: () => <Propagation /> },
  { path: "diff", title: "Differences", key: "d", rare: true, view: () => <Diff /> },
  { path: "revisions", title: "Revisions", key: "v", view: ([rev]) => (rev === undefined ? <Revisions /> : <Revision rev={rev} />) },
  { path: "rollouts", title: "Rollouts", key: "l", view: ([id]) => (id === undefined ? <Rollouts /> : <Rollout id={id} />) },
  { path: "endpoints", title: "Endpoints", key: "n", rare: true, view: ([cluster]) => (cluster === undefined ? <Endpoints /> : <Cluster cluster={cluster} />) },
  { path: "fleet", title: "Fleet", key: "f", rare: true, view: () => <Fleet /> },
  { path: "try", title: "Try", key: "t", rare: true, view: () => <Try /> },
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
  const link = ({ path, title }: { path: string; title: string }) => (
    <a key={path} href={linkTo(path)} aria-current={view === path ? "page" : undefined}>
      {title}
    </a>
  );
  return (
    <>
      <header class="top">
        <b>Chancery</b>
        <nav>
          {views.filter((v) => !v.rare).map(link)}
          <details class="menu" key={view}>
            <summary>{views.find((v) => v.rare && v.path === view)?.title ?? "More"}</summary>
            <div>{views.filter((v) => v.rare).map(link)}</div>
          </details>
        </nav>
        <Search view={view} />
        <span class={`connection ${connection.value}`} role="status">
          {connection.value === "out" ? "signed out" : connection.value}
        </span>
        <Who />
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
          if (searchable && route.value.path.length === 1) setQuery({ q }, false);
          else go(linkTo("clients", [], { q }));
        }}
      >
        <input
          ref={input}
          type="search"
          value={text}
          aria-label="Search"
          placeholder={view === "events" ? "kind:refused type:lds web" : "group:edge state:refused type:lds web"}
        />
        <kbd>/</kbd>
      </form>
    </search>
  );
}

// Who uses the page.
function Who() {
  const is = session.value;
  if (!is?.name) return null;
  const roles = is.roles.map((r) => (r.groups ? `${r.role} (${r.groups.join(", ")})` : r.role)).join(", ");
  const leave = () => signOut().then(unfollow, () => loadSession());
  return (
    <span class="who">
      {is.name !== "loopback" && <span title={`Roles: ${roles || "none"}`}>{is.name}</span>}
      {is.signed_in ? (
        <button type="button" onClick={leave}>
          Sign out
        </button>
      ) : (
        is.sign_in.length > 0 && (
          <button type="button" onClick={() => (signedOut.value = true)}>
            Sign in
          </button>
        )
      )}
    </span>
  );
}

// The form for a token. The server accepts no sign-in over plain text, but within its machine.
function SignIn() {
  const text = useSignal("");
  const failure = useSignal<Failure | undefined>(undefined);
  const is = session.value;
  useEffect(() => {
    if (!is) void loadSession();
  }, []);
  if (!is) return null;
  if (!is.sign_in.length) {
    return (
      <>
        <h1>This server needs a credential</h1>
        <p class="sub">This connection is not encrypted, so the page does not ask for the token. Use TLS, or a tunnel to this machine.</p>
      </>
    );
  }
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        signIn(text.value.trim()).then(follow, (f) => {
          failure.value = f;
        });
      }}
    >
      <h1>Sign in</h1>
      <p class="sub">The token is in a file of the server: that of --admin-token-file, or of the roles file. The page forgets it.</p>
      <Problem failure={failure.value ?? (signInFailure.value ? new Failure(401, signInFailure.value) : undefined)} />
      <input type="password" aria-label="Token" autocomplete="off" onInput={(e) => (text.value = e.currentTarget.value)} />{" "}
      <button type="submit">Sign in</button>
      {is.sign_in.includes("oidc") && (
        <p>
          <a href={urlOf("/api/v1/session/oidc", [], { to: location.pathname + location.search })}>Sign in with your organization</a>
        </p>
      )}
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
  else if (e.key === "j" || e.key === "k") focusRow(e.key === "j" ? 1 : -1);
  else if (e.key === "?") helpOpen.value = true;
  else if (e.key === "/") {
    e.preventDefault();
    document.querySelector<HTMLInputElement>(".search input")?.select();
  }
});

// A visible page keeps its session.
const sessionEvery = 5 * 60 * 1000; // ms
const keepSession = () => {
  if (document.visibilityState === "visible") void loadSession();
};
setInterval(keepSession, sessionEvery);
document.addEventListener("visibilitychange", keepSession);

// Each text of the page passes here, so a name of a client cannot hide or reorder characters. Links keep the name.
const before = options.vnode;
options.vnode = (v) => {
  const of = v as { type: unknown; props: unknown };
  if (of.type === null && typeof of.props === "string") of.props = visible(of.props);
  else if (typeof of.type === "string") {
    const props = of.props as Record<string, unknown>;
    for (const name of ["title", "aria-label"]) {
      if (typeof props[name] === "string") props[name] = visible(props[name]);
    }
  }
  before?.(v);
};

start();
keepSession();
follow();
render(<Shell />, document.getElementById("page") as HTMLElement);
