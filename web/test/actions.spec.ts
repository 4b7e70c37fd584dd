// Changes on the page: only for callers whose roles allow them, and with the effect before them.
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "@playwright/test";
import { accessible, expect, heading, look, quickstart, test, type World } from "./world";

const at = (name: string) => join(tmpdir(), `page-actions-${process.pid}-${name}`);
const tokens: Record<string, string> = { boss: "correct-horse-battery", edge: "battery-horse-correct", viewer: "horse-battery-correct" };

test.beforeAll(() => {
  for (const [name, token] of Object.entries(tokens)) writeFileSync(at(name), `${token}\n`, { mode: 0o600 });
  const files = Object.keys(tokens).map((name) => `${name}: ${at(name)}`);
  writeFileSync(
    at("file"),
    `tokens: {${files.join(", ")}}
bindings:
- {role: commit, subjects: [{token: boss}]}
- {role: operate, groups: ["edge-*"], subjects: [{token: edge}]}
- {role: view, subjects: [{token: viewer}]}
`,
  );
});

async function signIn(page: Page, name: string) {
  await expect(heading(page)).toHaveText("Sign in");
  await page.getByLabel("Token").fill(tokens[name] ?? "");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(heading(page)).not.toHaveText("Sign in");
}

// Waits until the client has accepted its resources.
async function ready(world: World, node: string) {
  const headers = { Authorization: `Bearer ${tokens.viewer}` };
  await expect.poll(async () => (await fetch(`${world.url}/ready?node=${node}`, { headers })).status).toBe(200);
}

const buttons = /^(Resync|Disconnect|Reload|Restore)$/;

test("without credentials, the page is read-only", async ({ page, world }) => {
  await world.envoy("edge-1");
  for (const path of ["/", "/groups", "/clients/edge-1"]) {
    const known = page.waitForResponse(/\/api\/v1\/session$/);
    await page.goto(world.url + path);
    expect((await (await known).json()).roles).toEqual([{ role: "view" }]);
    await expect(page.getByRole("status")).toHaveText("live");
    await expect(heading(page)).not.toHaveText("");
    await expect(page.getByRole("button", { name: buttons })).toHaveCount(0);
  }
});

test.describe("with roles", () => {
  test.use({ flags: `--admin-roles ${at("file")}` });

  test("a client gets its resources again, and is disconnected", async ({ page, world }) => {
    await world.envoy("edge-1");
    await ready(world, "edge-1");
    await page.goto(`${world.url}/clients/edge-1`);
    await signIn(page, "boss");
    await page.getByRole("button", { name: "Resync" }).click();
    const dialog = page.getByRole("dialog", { name: "Resync" });
    await expect(dialog).toContainText("edge-1 gets all its resources again, also those that it refused.");
    await accessible(page);
    await look(page, "action");
    await dialog.getByRole("button", { name: "Resync" }).click();
    await expect(dialog).toContainText("4 resources sent again.");
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Disconnect" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Disconnect" }).click();
    await expect(page.getByRole("dialog")).toContainText("1 stream.");
    await page.keyboard.press("Escape");
    await expect(page.getByRole("dialog")).toHaveCount(0);
    await page.goto(world.url);
    await page.getByRole("button", { name: "Reload" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Reload" }).click();
    await expect(page.getByRole("dialog")).toContainText("0 resources set, 0 removed.");
  });

  test("a caller has the buttons of its groups only", async ({ page, world }) => {
    world.write("edge-eu/group.yaml", "match: {cluster: edge}\n");
    world.write("edge-eu/cluster.yaml", quickstart("cluster"));
    world.write("edge-eu/endpoints.yaml", quickstart("endpoints"));
    await world.envoy("edge-1");
    await page.goto(`${world.url}/groups`);
    await signIn(page, "edge");
    const row = page.getByRole("row", { name: /^edge-eu/ });
    await row.getByRole("button", { name: "Resync" }).click();
    await expect(page.getByRole("dialog")).toContainText("1 client of group edge-eu");
    await page.getByRole("dialog").getByRole("button", { name: "Resync" }).click();
    await expect(page.getByRole("dialog")).toContainText("1 stream, spread over");
    await page.keyboard.press("Escape");
    await expect(page.getByRole("row", { name: /^default/ }).getByRole("button")).toHaveCount(0);
    await accessible(page);
    await look(page, "actions-groups");
  });

  test("a viewer has no buttons", async ({ page, world }) => {
    await page.goto(world.url);
    await signIn(page, "viewer");
    await expect(heading(page)).toContainText("No problems");
    await expect(page.getByRole("button", { name: buttons })).toHaveCount(0);
  });
});

test.describe("with roles and a store", () => {
  test.use({ flags: `--admin-roles ${at("file")} --store file:./store --store-write` });

  test("a revision is restored, and a rollout is paused and aborted", async ({ page, world }) => {
    const store = ["--store", "file:./store"];
    await world.command("apply", "config", ...store, "-m", "first");
    world.write("cluster.yaml", quickstart("cluster").replace("connect_timeout: 1s", "connect_timeout: 7s"));
    await world.command("apply", "config", ...store, "-m", "longer timeout");
    await page.goto(`${world.url}/revisions/r1`);
    await signIn(page, "boss");
    await page.getByRole("button", { name: "Restore" }).click();
    const dialog = page.getByRole("dialog");
    await expect(dialog).toContainText("A new revision gets the content of r1: all 4 items.");
    await dialog.getByLabel("Reason").fill("<b>too long</b>");
    await dialog.getByRole("button", { name: "Restore" }).click();
    await expect(dialog).toContainText("r3 sets 1 and removes 0.");
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "Revisions" }).click();
    await expect(page.getByRole("row", { name: /r3 .*token boss.*<b>too long<\/b>.*restores r1/ })).toBeVisible();

    await world.command("freeze", "default", "--at", "r3", ...store, "-m", "wait");
    await world.command("rollout", "start", "r2", "--steps", "50%", ...store, "-m", "try", "--bake", "1h");
    await page.getByRole("link", { name: "Rollouts" }).click();
    await page.getByRole("link", { name: /^r2-/ }).first().click();
    await page.getByRole("button", { name: "Pause" }).click();
    await dialog.getByRole("button", { name: "Pause" }).click();
    await expect(dialog).toContainText("The rollout is paused.");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Abort" }).click();
    await expect(dialog).toContainText("All nodes get what they had before: group default r3.");
    await look(page, "action-abort");
    await dialog.getByRole("button", { name: "Abort" }).click();
    await expect(page.locator("h1")).toContainText("aborted");
    await expect(dialog).toContainText("The rollout is aborted.");
    await page.keyboard.press("Escape");
    await expect(page.getByRole("button", { name: "Abort" })).toHaveCount(0);
    await accessible(page);
  });
});
