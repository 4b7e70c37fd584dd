// The page while the server, the network or the clock of the browser has a fault.
import { expect, heading, quickstart, refused, test } from "./world";

test("after a restart the events of the old server are gone", async ({ page, world }) => {
  for (let i = 0; i < 3; i++) {
    world.write("route.yaml", quickstart("route").replace("hello from", `hello ${i} from`));
    await expect.poll(async () => (await (await fetch(`${world.url}/api/v1/status`)).json()).config.revision).toBe(i + 2);
  }
  await page.goto(`${world.url}/events`);
  await expect(page.getByRole("cell", { name: "commit" })).toHaveCount(4);
  await world.stop("server");
  await expect(page.getByRole("status")).toHaveText("away");
  await world.start();
  await expect(page.getByRole("status")).toHaveText("live");
  await expect(page.getByRole("cell", { name: "commit" })).toHaveCount(1);
});

test("a failed load is repeated, without an event of the server", async ({ page, world }) => {
  let loads = 0;
  await page.route("**/api/v1/status?**", (r) => r.fulfill({ status: 503, body: `${++loads}` }));
  await page.goto(world.url);
  await expect(page.getByRole("alert")).toContainText("Service Unavailable");
  await expect.poll(() => loads).toBeGreaterThan(1); // the first events of the server cause one
  await page.unrouteAll();
  await expect(heading(page)).toContainText("No problems");
});

test("an answer that ends early is a failure with a sentence", async ({ page, world }) => {
  await page.route("**/api/v1/status?**", (r) => r.fulfill({ contentType: "application/json", body: '{"config": {' }));
  await page.goto(world.url);
  await expect(page.getByRole("alert")).toContainText("The answer of the server is incomplete.");
  await page.unrouteAll({ behavior: "ignoreErrors" });
});

test("a request without an answer ends, and is repeated", async ({ page, world }) => {
  await page.clock.install();
  await page.addInitScript("AbortSignal.timeout = (ms) => { const c = new AbortController(); setTimeout(() => c.abort(), ms); return c.signal }");
  await page.route("**/api/v1/status?**", () => undefined);
  await page.goto(world.url);
  await page.clock.runFor(31_000);
  await expect(page.getByRole("alert")).toContainText("The server does not answer.");
  await page.unrouteAll();
  await page.clock.runFor(6000);
  await expect(heading(page)).toContainText("No problems");
});

for (const hours of [1, -1]) {
  test(`ages do not depend on the clock of the browser: ${hours} h`, async ({ page, world }) => {
    await world.envoy("edge-1");
    await expect.poll(async () => (await fetch(`${world.url}/ready?node=edge-1`)).status).toBe(200);
    await page.clock.install({ time: Date.now() + hours * 3_600_000 });
    await page.goto(`${world.url}/clients/edge-1`);
    await expect(page.getByRole("link", { name: "CDS", exact: true })).toBeVisible();
    await page.clock.runFor(2000);
    await expect(page.locator("time").first()).toHaveText(/^[0-9]+ s$/);
    await expect(page.locator(".lane i").first()).toBeInViewport();
  });
}

test("the selection stays at a row that moves", async ({ page, world }) => {
  for (const node of ["a-1", "b-1", "c-1"]) await world.envoy(node);
  await page.goto(`${world.url}/clients`);
  await expect(page.getByRole("row")).toHaveCount(4);
  await expect(page.getByText("synced").first()).toBeVisible();
  for (const key of ["j", "j"]) await page.keyboard.press(key);
  const selected = page.locator("tr[aria-selected=true]");
  const node = (await selected.getByRole("link").textContent()) ?? "";
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toBeVisible();
  await page.keyboard.press("j");
  await page.keyboard.press("Escape");
  await expect(selected).toContainText(node);
  await page.route("**/api/v1/clients?**", async (r) => {
    const answer = await r.fetch();
    const list = await answer.json();
    await r.fulfill({ response: answer, json: { ...list, items: list.items.slice(1), total: 2 } });
  });
  world.write("listener.yaml", refused(quickstart("listener")));
  await expect(page.getByRole("row")).toHaveCount(3);
  await expect(selected).toContainText(node);
  await page.unrouteAll({ behavior: "ignoreErrors" });
});

test("a refusal is visible in the conversation, though an accepted version follows", async ({ page, world }) => {
  await world.envoy("edge-1");
  await expect.poll(async () => (await fetch(`${world.url}/ready?node=edge-1`)).status).toBe(200);
  await page.goto(`${world.url}/clients/edge-1`);
  world.write("listener.yaml", refused(quickstart("listener")));
  const nack = page.locator(".lane i[title^=refused]");
  await expect(nack).toBeVisible();
  const top = await nack.evaluate((e) => {
    const at = e.getBoundingClientRect();
    return document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2)?.classList.contains("bad");
  });
  expect(top).toBe(true);
});

test("of a very long resource the page shows the beginning", async ({ page, world }) => {
  const route = (i: number) => `  - {match: {path: "/number/${i}"}, direct_response: {status: 200}}\n`;
  const routes = Array.from({ length: 5000 }, (_, i) => route(i)).join("");
  world.write("route.yaml", `${quickstart("route").split("  routes:")[0]}  routes:\n${routes}`);
  await expect.poll(async () => (await (await fetch(`${world.url}/api/v1/resources/RDS/local`)).text()).length).toBeGreaterThan(200_000);
  await page.goto(`${world.url}/resources/RDS/local`);
  await expect(page.locator("pre")).toContainText("/number/0");
  expect((await page.locator("pre").textContent())?.length).toBe(200_000);
  await page.getByRole("button", { name: "Show all" }).click();
  await expect(page.locator("pre")).toContainText("/number/4999");
});
