import { accessible, expect, look, quickstart, test } from "./world";

const hostile = `<script>document.title='owned'</script>\u202egnp.exe`;

const route = (clusters: string[]) =>
  JSON.stringify({
    "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    name: "local",
    virtual_hosts: [{ name: "all", domains: ["*"], routes: clusters.map((cluster) => ({ match: { prefix: `/${cluster.length}` }, route: { cluster } })) }],
  });

test("the graph of references shows what is missing, and its nodes are links", async ({ page, world }) => {
  await world.envoy("edge-1");
  world.write("route.yaml", route(["backend", "backent", hostile, "y".repeat(1 << 20)]));
  await page.goto(`${world.url}/resources/LDS/http`);
  const graph = page.getByRole("region", { name: "Graph of references" });
  await expect(graph.getByRole("link")).toHaveCount(7);
  await expect(graph.locator(".placed")).toBeVisible();
  await expect(graph.locator("path.bad")).toHaveCount(3);
  await expect(graph.getByRole("link", { name: /CDS missing backent did you mean "backend"/ })).toBeVisible();
  await expect(graph.getByRole("link", { name: /^CDS missing <script>/ })).toBeVisible();
  await expect(graph.getByRole("link", { name: /RDS .*local.*refers to .*CDS backend; CDS backent, which is missing/ })).toBeVisible();
  await expect(graph.getByRole("link", { name: /LDS 1 of 1 accepted http/ })).toHaveAttribute("aria-current", "true");
  await expect(page.locator("main script")).toHaveCount(0);
  expect(await page.title()).not.toBe("owned");
  await accessible(page);
  await look(page, "graph");

  const cluster = graph.getByRole("link", { name: /CDS 1 of 1 accepted backend/ });
  await cluster.focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/resources\/CDS\/backend$/);
  await expect(graph.getByRole("link")).toHaveCount(4); // its endpoints, its route, and the listener of the route
  await expect(graph.getByRole("link", { name: /LDS .*http/ })).toBeVisible();
  await accessible(page);

  world.write("route.yaml", quickstart("route"));
  await page.goBack();
  await expect(graph.getByRole("link")).toHaveCount(4);
  await expect(graph.locator("path.bad")).toHaveCount(0);
});

test("a resource shows the lines of its fields and who has it", async ({ page, world }) => {
  await world.envoy("edge-1");
  await world.envoy(hostile);
  world.write(
    "listener.yaml",
    `# hunter2\n${quickstart("listener").replace("port_value: 10000", "port_value: 0").replace("stat_prefix: http", "stat_prefix: web")}`,
  );
  await page.goto(`${world.url}/resources/LDS/http`);
  await expect(page.locator(".line", { hasText: '"stat_prefix": "web"' })).toBeVisible();
  await expect(page.locator(".line", { hasText: '"address": "127.0.0.1"' })).toHaveAttribute("data-line", "6");
  await expect(page.locator(".line", { hasText: '"stat_prefix"' })).toHaveAttribute("title", /config\/listener\.yaml:\d+$/);
  const who = page.locator(".panel", { has: page.getByRole("heading", { name: "Subscribers" }) });
  await expect(who.getByRole("listitem")).toHaveCount(2);
  await expect(who.getByRole("link", { name: "<script>" })).toBeVisible();
  await accessible(page);
  await look(page, "resource");
  const answer = await (await fetch(`${world.url}/api/v1/resources/LDS/http?places=1`)).text();
  expect(answer).toContain('"lines":{');
  expect(answer).not.toContain("hunter2"); // no comment of a file leaves the server
  await who.getByRole("link", { name: "edge-1" }).click();
  await expect(page).toHaveURL(/\/clients\/edge-1\?type=LDS&name=http$/);
});

test.describe("with a store", () => {
  test.use({ flags: "--store file:./store --store-write" });

  test("a resource has its history", async ({ page, world }) => {
    const apply = (message: string) => world.command("apply", "config", "--store", "file:./store", "-m", message);
    await apply("first");
    world.write("cluster.yaml", quickstart("cluster").replace("connect_timeout: 1s", "connect_timeout: 7s"));
    await apply(hostile);
    await page.goto(`${world.url}/resources/CDS/backend`);
    const history = page.locator(".panel", { has: page.getByRole("heading", { name: "History" }) });
    await expect(history.getByRole("listitem")).toHaveCount(2);
    await expect(history.getByRole("listitem").first()).toContainText("<script>");
    await accessible(page);
    await history.getByRole("link", { name: "to now" }).last().click();
    await expect(page.getByRole("region", { name: "changed CDS backend" }).locator("ins")).toHaveText("7s");
  });
});
