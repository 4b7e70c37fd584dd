import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "@playwright/test";
import { accessible, expect, heading, quickstart, refused, test } from "./world";

// Saves the picture for the docs, if IMAGES is their directory.
async function picture(page: Page, name: string) {
  if (process.env.IMAGES) await page.screenshot({ path: join(process.env.IMAGES, `page-${name}.png`) });
}

test("a refusal appears on the overview, leads to the line of the file, and goes", async ({ page, world }) => {
  await world.envoy("edge-1");
  await world.envoy("edge-2");
  await page.goto(world.url);
  await expect(heading(page)).toHaveText("No problems, 2 of 2 clients are synced");
  await expect(page.getByText("Nothing is wrong.")).toBeVisible();
  await accessible(page);

  world.write("listener.yaml", refused(quickstart("listener")));
  await expect(heading(page)).toHaveText("1 problem, 0 of 2 clients are synced");
  const problem = page.getByRole("link", { name: /refused LDS http/ });
  await expect(problem).toContainText("2clients");
  await expect(problem).toContainText("cannot bind");
  await expect(problem).toContainText(/listener\.yaml:5:\d+/);
  await accessible(page);

  await picture(page, "overview");
  await problem.click();
  await expect(page).toHaveURL(/\/clients\?q=state%3Arefused\+type%3Alds/);
  await expect(page.getByRole("row")).toHaveCount(3);
  await accessible(page);
  await page.getByRole("link", { name: "edge-2" }).click();
  await page.getByRole("link", { name: "LDS", exact: true }).click();
  await expect(page.getByRole("heading", { name: "Why does it not have LDS?" })).toBeVisible();
  const broken = page.locator(".chain .broken");
  await expect(broken).toContainText("accepted");
  await accessible(page);
  await page.getByRole("link", { name: "why" }).click();
  await expect(page.locator(".chain .broken .place")).toHaveText(/listener\.yaml:5:\d+/);
  await expect(page.getByRole("img", { name: /events of .*LDS/ })).toBeVisible();
  await picture(page, "why");

  world.write("listener.yaml", quickstart("listener").replace("port_value: 10000", "port_value: 0"));
  await expect(page.getByRole("heading", { name: "Does it have LDS http?" })).toBeVisible();
  await page.getByRole("link", { name: "Overview" }).click();
  await expect(heading(page)).toHaveText("No problems, 2 of 2 clients are synced");
});

test("a rejected load is a problem with its place", async ({ page, world }) => {
  await page.goto(world.url);
  await expect(page.getByText("No client is connected.")).toBeVisible();
  world.write("route.yaml", "virtual_hosts: [");
  await expect(page.getByText("load rejected")).toBeVisible();
  await expect(page.getByText(/route\.yaml:\d+/)).toBeVisible();
});

test("a resource shows its content, its references and who has it", async ({ page, world }) => {
  await world.envoy("edge-1");
  await page.goto(`${world.url}/resources`);
  await expect(page.getByRole("table", { name: "Resources" }).getByRole("row")).toHaveCount(5);
  await accessible(page);
  await page.getByRole("link", { name: "http", exact: true }).click();
  await expect(page.locator("pre")).toContainText('"stat_prefix": "http"');
  await page.getByRole("link", { name: /^RDS .*local/ }).click();
  await expect(page).toHaveURL(/\/resources\/RDS\/local$/);
  await accessible(page);
});

test("a client has its events from before the page was opened", async ({ page, world }) => {
  await world.envoy("edge-1");
  await expect.poll(async () => (await fetch(`${world.url}/ready?node=edge-1`)).status).toBe(200);
  await page.addInitScript("delete window.SharedWorker"); // a test cannot stop requests of a shared worker
  await page.route(/events\?pace/, (r) => r.abort());
  await page.goto(`${world.url}/clients/edge-1`);
  await expect(page.getByRole("img", { name: /events of .*CDS/ })).toBeVisible();
});

test("keys search, move and open", async ({ page, world }) => {
  for (const node of ["web-1", "web-2", "db-1"]) await world.envoy(node);
  await page.goto(world.url);
  await page.keyboard.press("g");
  await page.keyboard.press("c");
  await expect(page.getByRole("row")).toHaveCount(4);
  await page.keyboard.press("/");
  await page.keyboard.type("web group:default");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\?q=web\+group%3Adefault$/);
  await expect(page.getByRole("row")).toHaveCount(3);
  await page.locator("main").click();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/clients\/web-2$/);
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Keys" })).toBeVisible();
  await accessible(page);
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog", { name: "Keys" })).toBeHidden();
  await page.goto(`${world.url}/clients?q=colour:red`);
  await expect(page.getByText("The search has no key colour.")).toBeVisible();
});

test("several words select nodes that contain all, and Back returns to the search before", async ({ page, world }) => {
  for (const node of ["web-edge-1", "web-2", "edge-3"]) await world.envoy(node);
  await page.goto(`${world.url}/clients`);
  await expect(page.getByRole("row")).toHaveCount(4);
  for (const [text, rows] of [
    ["web", 3],
    ["web edge", 2],
    ["{web}?", 0],
  ] as const) {
    await page.getByRole("searchbox").fill(text);
    await page.keyboard.press("Enter");
    await expect(page.getByRole("row")).toHaveCount(rows);
  }
  await expect(page.getByText("No client matches this search.")).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
  await page.goBack();
  await expect(page).toHaveURL(/\?q=web\+edge$/);
  await expect(page.getByRole("searchbox")).toHaveValue("web edge");
  await page.goBack();
  await expect(page.getByRole("row")).toHaveCount(3);
});

test("names of nodes cannot add markup", async ({ page, world }) => {
  const hostile = `<img src=x onerror="document.title='owned'">/..%2f\u202eexe`;
  await world.envoy(hostile);
  await page.goto(`${world.url}/clients`);
  await page.getByRole("link", { name: "<img" }).click();
  await expect(heading(page)).toContainText("<img src=x onerror=");
  await expect(heading(page)).toContainText("\\u202eexe");
  await expect(page).toHaveURL(/%E2%80%AEexe$/);
  expect(await page.locator("main").innerHTML()).not.toMatch(/>[^<]*\u202e/);
  await expect(page.getByText("No client").or(page.getByRole("alert"))).toHaveCount(0);
  await expect(page.locator("main img")).toHaveCount(0);
  expect(await page.title()).not.toBe("owned");
  await page.goto(`${world.url}/events`);
  await expect(page.getByRole("cell", { name: "<img" }).first()).toBeVisible();
  await accessible(page);
});

test("names that are dot segments of a path open their views", async ({ page, world }) => {
  world.write("cluster.yaml", quickstart("cluster").replace("name: backend", 'name: ".."'));
  await world.envoy(".");
  await page.goto(`${world.url}/resources/CDS`);
  await page.getByRole("link", { name: "..", exact: true }).click();
  await expect(heading(page)).toHaveText("CDS ..");
  await expect(page.locator("pre")).toContainText('"name": ".."');
  await page.getByRole("link", { name: ".", exact: true }).click();
  await expect(heading(page)).toContainText(". ");
  await expect(page.getByRole("heading", { name: /have CDS \.\.\?/ })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("heading", { name: /have CDS \.\.\?/ })).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("the page tells that the server is away, and follows it when it is back", async ({ page, world }) => {
  await page.goto(`${world.url}/clients`);
  await expect(page.getByRole("status")).toHaveText("live");
  await world.stop("server");
  await expect(page.getByText("The server does not answer.").first()).toBeVisible();
  await accessible(page);
  await world.start();
  await expect(page.getByRole("status")).toHaveText("live");
  await world.envoy("late-1");
  await expect(page.getByRole("link", { name: "late-1" })).toBeVisible();
});

test("more pages of a browser than it has connections to a server are live", async ({ page, world }) => {
  const pages = [page];
  while (pages.length < 8) pages.push(await page.context().newPage());
  for (const p of pages) await p.goto(world.url);
  for (const p of pages) await expect(p.getByRole("status")).toHaveText("live");
  await pages[0]?.close();
  await world.envoy("edge-1");
  for (const p of pages.slice(1)) await expect(heading(p)).toHaveText("No problems, 1 of 1 clients are synced");
});

test("the page tells that another server of the store answers", async ({ page, world }) => {
  let id = "a";
  await page.route("**/api/v1/status?**", async (r) => {
    const answer = await r.fetch();
    await r.fulfill({ response: answer, headers: { ...answer.headers(), "chancery-replica": id } });
  });
  await page.goto(world.url);
  await expect(heading(page)).toContainText("No problems");
  await expect(page.getByText("Another server")).toBeHidden();
  id = "b";
  await world.envoy("edge-1");
  await expect(page.getByText("Another server of the store answers: b. Before, it was a.")).toBeVisible();
  await accessible(page);
  await page.getByRole("button", { name: "Close" }).click();
  await expect(page.getByText("Another server")).toBeHidden();
  await page.unrouteAll({ behavior: "ignoreErrors" });
});

test("no secret reaches the browser", async ({ page, world }) => {
  const key = "-----BEGIN PRIVATE KEY-----\\nc2VjcmV0c2VjcmV0\\n-----END PRIVATE KEY-----\\n";
  const secret = `# password hunter2\n"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\nname: token\ngeneric_secret: {secret: {inline_string: "${key}"}}\n`;
  world.write("secret.yaml", secret);
  let all = "";
  page.on("response", async (r) => {
    if (!r.url().includes("/events")) all += await r.text().catch(() => "");
  });
  for (const path of ["/", "/resources", "/resources/SDS/token"]) {
    await page.goto(world.url + path);
    await page.waitForLoadState("load");
    await expect(heading(page)).not.toHaveText("");
  }
  await expect(page.locator("pre")).toBeVisible();
  expect(all).toContain("token");
  for (const word of ["c2VjcmV0", "hunter2"]) expect(all).not.toContain(word);
});

test.describe("with a token", () => {
  const file = join(tmpdir(), `page-token-${process.pid}`);
  test.beforeAll(() => writeFileSync(file, "correct-horse-battery\n", { mode: 0o600 }));
  test.use({ flags: `--admin-token-file ${file}` });

  test("the page signs in", async ({ page, world }) => {
    await page.goto(world.url);
    await expect(heading(page)).toHaveText("Sign in");
    await accessible(page);
    await page.getByLabel("Token").fill("wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await expect(page.getByRole("alert")).toContainText("a valid bearer token is needed");
    await page.getByLabel("Token").fill("correct-horse-battery");
    await page.getByRole("button", { name: "Sign in" }).click();
    await expect(heading(page)).toContainText("No problems");
    await expect(page.getByRole("status")).toHaveText("live");
    expect(await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage }))).toBe("{}");
    await page.reload();
    await expect(heading(page)).toContainText("No problems");
  });
});

test("a missing reference leads to the resource that has it", async ({ page, world }) => {
  world.write("route.yaml", quickstart("route").replace("cluster: backend", "cluster: backend2"));
  await page.goto(world.url);
  await page.getByRole("link", { name: /XDS0201/ }).click();
  await expect(page).toHaveURL(/\/resources\/RDS\/local/);
  await expect(page.getByRole("link", { name: /^CDS missing/ })).toBeVisible();
  await expect(page.getByRole("listitem").filter({ hasText: "RDS local refers to CDS backend2" })).toContainText(/config\/route\.yaml:13:\d+/);
  await expect(page.locator('.line[data-line="13"]').last()).toContainText('"cluster": "backend2"');
});

test("no view is wider than a window of 800 pixels", async ({ page, world }) => {
  await world.envoy("edge-1");
  await page.setViewportSize({ width: 800, height: 600 });
  const views = [
    "",
    "clients",
    "clients/edge-1",
    "resources",
    "resources/RDS/local",
    "groups",
    "propagation",
    "diff?to=files",
    "revisions",
    "fleet",
    "try",
    "events",
  ];
  for (const view of views) {
    await page.goto(`${world.url}/${view}`);
    await expect(heading(page)).not.toHaveText("");
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(wider, `pixels of ${view}`).toBeLessThanOrEqual(0);
  }
});

test("keys move through the rows of all tables of a view", async ({ page, world }) => {
  await world.envoy("edge-1");
  await page.goto(`${world.url}/clients/edge-1`);
  await expect(page.getByRole("row", { name: /RDS local/ })).toBeVisible();
  const row = page.locator("tr:focus-within");
  await page.keyboard.press("j");
  const first = await row.textContent();
  await page.keyboard.press("j");
  await expect(row).toHaveCount(1);
  expect(await row.textContent()).not.toBe(first);
  await page.keyboard.press("k");
  await expect(row).toHaveText(first ?? "");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/resources\//);
  await page.goto(`${world.url}/groups`);
  await expect(page.getByRole("row", { name: /default/ })).toBeVisible();
  await page.keyboard.press("j");
  await expect(row).toContainText("default");
  await accessible(page);
});
