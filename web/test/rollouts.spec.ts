import { accessible, expect, heading, look, quickstart, refused, test } from "./world";

test("without a store, the rollouts have a hint", async ({ page, world }) => {
  await page.goto(`${world.url}/rollouts`);
  await expect(page.getByText("This server has no store of revisions")).toBeVisible();
  await accessible(page);
});

test.describe("with a store", () => {
  test.use({ flags: "--store file:./store --store-write" });

  test("a rollout shows its steps, its gates, and the client that refused", async ({ page, world }) => {
    const store = ["--store", "file:./store"];
    const listener = quickstart("listener").replace("port_value: 10000", "port_value: 0");
    await world.command("apply", "config", ...store, "-m", "first");
    await world.envoy("edge-1", { canary: "true" });
    await world.envoy("edge-2");
    await page.goto(`${world.url}/rollouts`);
    await expect(page.getByText("No rollout has begun.")).toBeVisible();
    await accessible(page);
    await world.command("freeze", "default", ...store, "-m", "<b>careful</b>");
    await expect(page.getByText("<b>careful</b>")).toBeVisible();

    world.write("cluster.yaml", quickstart("cluster").replace("connect_timeout: 1s", "connect_timeout: 7s"));
    await world.command("apply", "config", ...store, "-m", "longer timeout");
    const start = (revision: string) => world.command("rollout", "start", revision, "--label", "canary=true", ...store, "-m", "<i>try</i>", "--bake", "1h");
    await start("r2");
    await page.getByRole("link", { name: /^r2-/ }).first().click();
    await expect(heading(page)).toContainText("running");
    const steps = page.getByRole("list", { name: "Steps" });
    await expect(steps.locator(".current")).toContainText("nodes with canary=true");
    await expect(steps.locator(".current")).toContainText("The clients accept it. It must stay so for 60 min.");
    await expect(steps.locator(".unknown")).toContainText("all nodes");
    await expect(page.locator(".numbers")).toContainText("1accepted");
    await accessible(page);
    await look(page, "rollout-running");
    const id = decodeURIComponent(new URL(page.url()).pathname.split("/")[2] ?? "");
    await world.command("rollout", "promote", id, ...store, "-m", "fine");
    await expect(steps.locator(".current")).toContainText("all nodes");
    await world.command("rollout", "promote", id, ...store, "-m", "fine");
    await expect(heading(page)).toContainText("done");

    world.write("listener.yaml", refused(listener));
    await world.command("apply", "config", ...store, "-m", "another address");
    await start("r3").catch((e) => expect(String(e)).toContain("rolled back at once"));
    await page.getByRole("link", { name: "Rollouts" }).click();
    await expect(page.getByRole("row", { name: /rolled back/ })).toBeVisible({ timeout: 20_000 });
    await look(page, "rollouts");
    await page.getByRole("link", { name: /^r3-/ }).first().click();
    await expect(page.getByRole("heading", { name: "Who refused" })).toBeVisible();
    await expect(page.getByText("cannot bind").first()).toBeVisible();
    await accessible(page);
    await look(page, "rollout-refused");
    await page.getByRole("link", { name: "edge-1" }).click();
    await expect(heading(page)).toContainText("edge-1");
  });
});
