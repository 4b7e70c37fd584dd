// A real server and real Envoys for the tests of the page, and a page whose errors are failures.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import AxeBuilder from "@axe-core/playwright";
import { test as base, expect, type Page } from "@playwright/test";

const root = resolve(import.meta.dirname, "../..");
const program = join(root, "bin/chancery");
const crowd = join(root, "bin/crowd"); // from e2e/crowd
const envoys = join(root, ".cache/envoy");

async function freePort(): Promise<number> {
  return new Promise((done, fail) => {
    const s = createServer();
    s.on("error", fail);
    s.listen(0, "127.0.0.1", () => {
      const at = s.address();
      s.close(() => (at && typeof at === "object" ? done(at.port) : fail(new Error("no port"))));
    });
  });
}

// A World is a server with a directory of files, and its clients.
export class World {
  readonly dir = mkdtempSync(join(tmpdir(), "page-"));
  private programs = new Map<string, ChildProcess>();
  private xds = 0;
  private admin = 0;

  constructor(private flags: string[] = []) {}

  get url() {
    return `http://127.0.0.1:${this.admin}`;
  }

  // Replaces a file of the configuration.
  write(name: string, text: string) {
    writeFileSync(join(this.dir, "next"), text);
    mkdirSync(dirname(join(this.dir, "config", name)), { recursive: true });
    renameSync(join(this.dir, "next"), join(this.dir, "config", name));
  }

  async start() {
    this.xds ||= await freePort();
    this.admin ||= await freePort();
    this.run("server", program, [
      "serve",
      ...(this.flags.includes("--store-write") ? [] : ["config"]), // a server of a store serves what commands commit
      "--listen",
      `127.0.0.1:${this.xds}`,
      "--admin-listen",
      `127.0.0.1:${this.admin}`,
      "--state-dir",
      join(this.dir, "state"),
      ...this.flags,
    ]);
    const answers = () =>
      fetch(this.url).then(
        () => "answers",
        () => readFileSync(join(this.dir, "log"), "utf8"),
      );
    await expect.poll(answers, { timeout: 10_000 }).toBe("answers");
  }

  // Starts an Envoy with a node ID.
  async envoy(node: string, metadata: Record<string, string> = {}) {
    const bootstrap = {
      node: { id: node, cluster: "edge", metadata },
      dynamic_resources: {
        ads_config: { api_type: "DELTA_GRPC", transport_api_version: "V3", grpc_services: [{ envoy_grpc: { cluster_name: "xds" } }] },
        lds_config: { ads: {}, resource_api_version: "V3" },
        cds_config: { ads: {}, resource_api_version: "V3" },
      },
      static_resources: {
        clusters: [
          {
            name: "xds",
            connect_timeout: "1s",
            typed_extension_protocol_options: {
              "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                explicit_http_config: { http2_protocol_options: {} },
              },
            },
            load_assignment: {
              cluster_name: "xds",
              endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: "127.0.0.1", port_value: this.xds } } } }] }],
            },
          },
        ],
      },
    };
    const file = join(this.dir, `envoy-${this.programs.size}.json`);
    writeFileSync(file, JSON.stringify(bootstrap));
    const newest = readdirSync(envoys)
      .filter((f) => f.startsWith("envoy-"))
      .sort()
      .at(-1);
    this.run(node, join(envoys, newest ?? "envoy"), ["-c", file, "--use-dynamic-base-id", "--concurrency", "1", "-l", "off"]);
  }

  // Runs a command of the program to its end, and returns its output.
  async command(...args: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(program, args, { cwd: this.dir });
    return stdout;
  }

  // Connects clients, of which one in a thousand refuses its clusters. They may cause events, each second.
  async crowd(clients: number, events = 0) {
    this.run("crowd", crowd, ["-server", `127.0.0.1:${this.xds}`, "-n", String(clients), "-events", String(events)]);
    const ready = () => readFileSync(join(this.dir, "log"), "utf8");
    await expect.poll(ready, { timeout: 180_000 }).toMatch(/^ready$/m);
  }

  private run(name: string, path: string, args: string[]) {
    const log = openSync(join(this.dir, "log"), "a");
    const p = spawn(path, args, { cwd: this.dir, stdio: ["pipe", log, log] });
    this.programs.set(name, p);
    closeSync(log);
    return p;
  }

  async stop(name: string) {
    const p = this.programs.get(name);
    this.programs.delete(name);
    if (!p || p.exitCode !== null) return;
    const ended = new Promise((done) => p.once("exit", done));
    p.kill(name === "server" ? "SIGTERM" : "SIGKILL");
    await ended;
  }

  async end() {
    for (const name of [...this.programs.keys()].reverse()) await this.stop(name);
    rmSync(this.dir, { recursive: true });
  }
}

// The example of the README.
export const quickstart = (name: string) => readFileSync(join(root, "examples/quickstart", `${name}.yaml`), "utf8");

// An address that each Envoy refuses: it is of no interface of this machine.
export const refused = (listener: string) => listener.replace("address: 127.0.0.1", "address: 192.0.2.1");

export const heading = (page: Page) => page.getByRole("heading", { level: 1 });

// Fails on findings of axe.
export async function accessible(page: Page) {
  const found = await new AxeBuilder({ page }).analyze();
  expect(found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`)).toEqual([]);
}

// Saves a picture in each of the colour schemes, if LOOK is a directory.
export async function look(page: Page, name: string) {
  if (!process.env.LOOK) return;
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: join(process.env.LOOK, `${name}-${colorScheme}.png`), fullPage: true });
  }
}

export const test = base.extend<{ flags: string; world: World }>({
  flags: ["", { option: true }],
  world: async ({ flags }, use) => {
    const w = new World(flags.split(" ").filter(Boolean));
    try {
      mkdirSync(join(w.dir, "config"));
      for (const name of ["listener", "route", "cluster", "endpoints"]) {
        const text = quickstart(name).replace("port_value: 10000", "port_value: 0");
        w.write(`${name}.yaml`, text);
      }
      await w.start();
      await use(w);
    } finally {
      await w.end();
    }
  },
  page: async ({ page }, use) => {
    const faults: string[] = [];
    page.on("pageerror", (e) => faults.push(e.message));
    page.on("console", (m) => {
      // A failed request is a case of some tests. Anything else, such as a violation of the CSP, is a fault.
      if (m.type() === "error" && !m.text().startsWith("Failed to load resource")) faults.push(m.text());
    });
    await use(page);
    expect(faults).toEqual([]);
  },
});

export { expect };
