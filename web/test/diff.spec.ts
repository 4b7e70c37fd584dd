import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { accessible, expect, heading, look, quickstart, refused, test, type World } from "./world";

const hostile = `<script>document.title='owned'</script>\u202egnp.exe`;
const cluster = (name: string, more: object) => JSON.stringify({ "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", name, ...more });

// Adds a group with a cluster for the nodes of a cluster name.
function group(world: World, name: string, ...clusters: string[]) {
  mkdirSync(join(world.dir, "config", name));
  writeFileSync(join(world.dir, "config", name, "group.yaml"), `match: {id: "${name}-*"}\ninclude: [default]\n`);
  for (const [i, text] of clusters.entries()) writeFileSync(join(world.dir, "config", name, `${i}.json`), text);
}

test("a refused version differs from the accepted one", async ({ page, world }) => {
  await world.envoy("edge-1");
  await expect.poll(async () => (await fetch(`${world.url}/ready?node=edge-1`)).status).toBe(200);
  world.write("listener.yaml", refused(quickstart("listener").replace("port_value: 10000", "port_value: 0")));
  await page.goto(`${world.url}/clients/edge-1`);
  await page
    .getByRole("row", { name: /LDS http refused/ })
    .getByRole("link", { name: "diff" })
    .click();
  await expect(page).toHaveURL(/\/diff\?from=accepted%3Aedge-1&to=sent%3Aedge-1&type=LDS&name=http$/);
  const difference = page.getByRole("region", { name: "changed LDS http" });
  await expect(difference.locator("del")).toHaveText('"127.0.0.1"');
  await expect(difference.locator("ins")).toHaveText('"192.0.2.1"');
  await expect(difference).toContainText(/listener\.yaml:\d+/);
  await accessible(page);
  await look(page, "diff");
  await page.getByRole("link", { name: "sent → wanted" }).click();
  await expect(page.getByRole("heading", { name: "No difference" })).toBeVisible();
  await page.getByRole("link", { name: "why?" }).click();
  await expect(page).toHaveURL(/\/clients\/edge-1\?type=LDS&name=http$/);
});

test("two selected clients are compared, also with hostile names", async ({ page, world }) => {
  const long = "y".repeat(1 << 20);
  group(world, "edge", cluster("same", { connect_timeout: "1s" }), cluster(hostile, {}), cluster(long, { alt_stat_name: hostile }));
  group(world, "mesh", cluster("same", { connect_timeout: "2s" }));
  await world.envoy("edge-1");
  await world.envoy("mesh-1");
  await page.goto(`${world.url}/clients`);
  await page.getByLabel("Select edge-1").check();
  await page.getByLabel("Select mesh-1").check();
  await accessible(page);
  await page.getByRole("link", { name: "compare edge-1 with mesh-1" }).click();
  await expect(page.getByRole("heading", { name: /1 changed, 0 added, 2 removed/ })).toBeVisible();
  await expect(page.getByRole("region", { name: "changed CDS same" })).toContainText("connect_timeout");
  await expect(page.getByRole("region", { name: "removed CDS <script>" })).toBeVisible();
  await expect(page.getByRole("region", { name: /removed CDS yyy/ })).toBeVisible();
  expect((await page.locator("main").textContent())?.length).toBeLessThan(10_000);
  await expect(page.locator("main script")).toHaveCount(0);
  expect(await page.title()).not.toBe("owned");
  await accessible(page);
  await look(page, "diff-clients");

  await page.goto(`${world.url}/diff?from=client:gone&to=client:mesh-1`);
  await expect(page.getByRole("alert")).toContainText("no client with node id");
});

test("files that are not served show what they would change", async ({ page, world }) => {
  await world.envoy("edge-1");
  await page.goto(`${world.url}/diff`);
  await expect(page.getByText("Select two sets of resources")).toBeVisible();
  await accessible(page);
  await page.getByLabel("to", { exact: true }).fill("files");
  await page.getByRole("button", { name: "Compare" }).click();
  await expect(page).toHaveURL(/\/diff\?to=files$/);
  await expect(page.getByRole("heading", { name: "No difference" })).toBeVisible();
  world.write("route.yaml", "virtual_hosts: [");
  await expect(page.getByRole("alert")).toContainText("the files have errors");
  await expect(page.locator(".quote").first()).toContainText("route.yaml:");
  await accessible(page);
});

test.describe("with a store", () => {
  test.use({ flags: "--store file:./store --store-write" });

  test("two revisions differ, and a secret is not shown", async ({ page, world }) => {
    const secret = (text: string) =>
      `# ${text}\n"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\nname: token\ngeneric_secret: {secret: {inline_string: ${text}}}\n`;
    const apply = (message: string) => world.command("apply", "config", "--store", "file:./store", "-m", message);
    let all = "";
    page.on("response", async (r) => {
      if (!r.url().includes("/events")) all += await r.text().catch(() => "");
    });
    world.write("secret.yaml", secret("hunter2"));
    await apply("first");
    world.write("secret.yaml", secret("hunter3"));
    world.write("cluster.yaml", quickstart("cluster").replace("connect_timeout: 1s", "connect_timeout: 7s"));
    await apply(hostile);
    await page.goto(`${world.url}/revisions/r2`);
    await page.getByRole("link", { name: "field by field" }).click();
    await expect(heading(page)).toHaveText("Differences");
    await expect(page.getByRole("region", { name: "changed SDS token" })).toContainText("secret changed");
    await expect(page.getByRole("region", { name: "changed CDS backend" }).locator("ins")).toHaveText("7s");
    await accessible(page);
    await look(page, "diff-revisions");
    expect(all).toContain("backend");
    expect(all).not.toContain("hunter");
  });
});
