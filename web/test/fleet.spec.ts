import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { accessible, expect, look, test } from "./world";

test("the fleet shows versions of clients, large responses, and certificates", async ({ page, world }) => {
  await page.goto(world.url);
  await page.getByText("More", { exact: true }).click();
  await accessible(page);
  await look(page, "menu");
  await page.getByRole("link", { name: "Fleet" }).click();
  await expect(page.getByRole("link", { name: "Try" })).toBeHidden();
  await expect(page.getByText("No client is connected.")).toBeVisible();
  await expect(page.getByText("No served resource has a certificate.")).toBeVisible();
  await accessible(page);
  await world.envoy("edge-1");
  await world.envoy("edge-2");
  await expect.poll(async () => (await fetch(`${world.url}/ready?node=edge-2`)).status).toBe(200);
  await expect.poll(async () => (await fetch(`${world.url}/ready?node=edge-1`)).status).toBe(200);
  const key = join(world.dir, "key.pem");
  const pem = execFileSync("openssl", [
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
    "-subj",
    "/CN=x",
    "-days",
    "3",
    "-keyout",
    key,
  ]);
  const inline = (text: string) => JSON.stringify({ inline_string: text });
  const type = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
  const secret = (private_key: string) =>
    `"@type": ${type}\nname: web\ntls_certificate:\n  certificate_chain: ${inline(String(pem))}\n  private_key: ${inline(private_key)}\n`;
  world.write("secret.yaml", secret(execFileSync("cat", [key]).toString()));
  await expect(page.getByText("in 2 d")).toBeVisible();
  await expect(page.getByRole("table", { name: "Largest responses" })).toContainText("edge-1");
  await accessible(page);
  await look(page, "fleet");
  await page.getByRole("link", { name: /^envoy 1\./ }).click();
  await expect(page).toHaveURL(/q=agent%3A%22envoy\+1/);
  await expect(page.getByRole("row")).toHaveCount(3);
});

test("without --endpoints, the endpoints have a hint", async ({ page, world }) => {
  await page.goto(`${world.url}/endpoints`);
  await expect(page.getByText("This server does not accept endpoints.")).toBeVisible();
  await accessible(page);
});

test.describe("with registered endpoints", () => {
  test.use({ flags: "--endpoints --admin-listen unix:./admin.sock" });

  test("endpoints show their health and their lease", async ({ page, world }) => {
    await page.goto(`${world.url}/endpoints`);
    await expect(page.getByText("No endpoint is registered.")).toBeVisible();
    await world.command("endpoints", "put", "backend", "10.0.0.7:80", "--ttl", "60s", "--health", "DRAINING", "--admin", "unix:./admin.sock");
    await page.goto(`${world.url}/endpoints`);
    await accessible(page);
    await page.getByRole("link", { name: "backend" }).click();
    const row = page.getByRole("row", { name: /10\.0\.0\.7:80/ });
    await expect(row).toContainText("draining");
    await expect(row).toContainText(/ends in [45]\d s of 1m0s/);
    await world.command("endpoints", "put", "backend", "10.0.0.8:80", "--ttl", "24h", "--admin", "unix:./admin.sock");
    await world.command("endpoints", "put", "backend", "10.0.0.9:80", "--ttl", "20s", "--admin", "unix:./admin.sock");
    const first = page.getByRole("row").nth(1);
    await expect(first).toContainText("10.0.0.9:80", { timeout: 19_000 }); // its lease ends soon
    await page.keyboard.press("g");
    await page.keyboard.press("n");
    await expect(page.getByRole("row", { name: /backend/ })).toContainText("1 ends soon");
    await accessible(page);
    await look(page, "endpoints");
  });
});
