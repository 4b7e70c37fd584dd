import { accessible, expect, look, quickstart, test } from "./world";

test("an edit shows its findings, its changes, and the clients that would get them", async ({ page, world }) => {
  await world.envoy("edge-1");
  await page.goto(`${world.url}/try`);
  await accessible(page);
  const check = async (text: string) => {
    await page.getByLabel("Resources").fill(text);
    await page.getByRole("button", { name: "Check" }).click();
  };
  const findings = page.getByRole("table", { name: "Findings" });
  await expect.poll(async () => (await fetch(`${world.url}/ready?node=edge-1`)).status).toBe(200);

  await check(quickstart("cluster"));
  await expect(page.getByText("The group has these resources already.")).toBeVisible();
  await check(quickstart("cluster").replace("connect_timeout: 1s", "connect_timeout: 7s"));
  await expect(page.getByRole("row", { name: /changed CDS backend/ })).toBeVisible();
  await expect(page.getByText("1 of 1")).toBeVisible();
  await accessible(page);
  await look(page, "try-changes");

  await check(`${quickstart("cluster")}colour: red\n`);
  await expect(findings).toContainText('XDS0102unknown field "colour"');
  await expect(findings).toContainText("8:1");
  await expect(page.getByText("No client: the server would not load it.")).toBeVisible();
  await accessible(page);
  await look(page, "try-error");

  await check(quickstart("route").replaceAll("cluster: backend", "cluster: <img src=x onerror=alert(1)>"));
  await expect(findings).toContainText("which does not exist");
  await check("x");
  await expect(findings).toContainText("1:1");
  const served = (await (await fetch(`${world.url}/api/v1/resources/CDS/backend`)).json()) as { items: { body: { connect_timeout: string } }[] };
  expect(served.items[0]?.body.connect_timeout).toBe("1s");
});

test("an edit that is too large is an error", async ({ page, world }) => {
  await page.goto(`${world.url}/try`);
  await page.getByLabel("Resources").fill("x".repeat(600_000));
  await page.getByRole("button", { name: "Check" }).click();
  await expect(page.getByRole("alert")).toContainText("more than 524288 bytes");
});
