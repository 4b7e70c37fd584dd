// Callers with roles: signing in and out, an expired session, and a caller without a role.
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";
import { expect, test } from "./world";

const at = (name: string) => join(tmpdir(), `page-roles-${process.pid}-${name}`);
const tokens: Record<string, string> = { ops: "correct-horse-battery", none: "battery-horse-correct" };

// An issuer whose users all refuse to sign in.
const issuer = createServer((r, w) => {
  const url = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}`;
  const at = new URL(r.url ?? "", url);
  if (at.pathname === "/auth") {
    w.writeHead(302, { Location: `${at.searchParams.get("redirect_uri")}?error=access_denied&state=${at.searchParams.get("state")}` }).end();
    return;
  }
  w.setHeader("Content-Type", "application/json");
  w.end(JSON.stringify({ issuer: url, authorization_endpoint: `${url}/auth`, token_endpoint: `${url}/token`, jwks_uri: `${url}/keys` }));
});
test.afterAll(() => issuer.close());

test.beforeAll(async () => {
  await new Promise<void>((ready) => issuer.listen(0, "127.0.0.1", ready));
  for (const [name, token] of Object.entries(tokens)) writeFileSync(at(name), `${token}\n`, { mode: 0o600 });
  writeFileSync(
    at("file"),
    `tokens: {ops: ${at("ops")}, none: ${at("none")}}
oidc: {issuer: "http://127.0.0.1:${(issuer.address() as AddressInfo).port}", client_id: page, client_secret_file: ${at("none")}}
bindings:
- {role: operate, groups: [edge], subjects: [{token: ops}]}
`,
  );
});
test.use({ flags: `--admin-roles ${at("file")}` });

const heading = (page: Page) => page.getByRole("heading", { level: 1 });

async function signIn(page: Page, name: string) {
  await expect(heading(page)).toHaveText("Sign in");
  await page.getByLabel("Token").fill(tokens[name] ?? "");
  await page.getByRole("button", { name: "Sign in" }).click();
}

test("a caller signs in with its roles and signs out", async ({ page, world }, info) => {
  await page.goto(`${world.url}/clients?q=web`);
  await signIn(page, "ops");
  await expect(heading(page)).toContainText("Clients");
  await expect(page.getByTitle("Roles: operate (edge)")).toHaveText("token ops");
  expect(new URL(page.url()).search).toBe("?q=web");
  expect((await new AxeBuilder({ page }).analyze()).violations).toEqual([]);
  await page.screenshot({ path: info.outputPath("signed-in.png") });
  // The page that another tab shows needs no other sign-in, and ends with this one.
  const other = await page.context().newPage();
  await other.goto(world.url);
  await expect(other.getByTitle("Roles: operate (edge)")).toBeVisible();
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(heading(page)).toHaveText("Sign in");
  await expect(heading(other)).toHaveText("Sign in");
  await expect(page.getByRole("status")).toHaveText("signed out");
});

test("an expired session shows the form again", async ({ page, world }) => {
  await page.goto(`${world.url}/resources`);
  await signIn(page, "ops");
  await expect(heading(page)).toContainText("Resources");
  await page.context().clearCookies();
  await page.getByRole("link", { name: "Groups" }).click();
  await expect(heading(page)).toHaveText("Sign in");
  expect(new URL(page.url()).pathname).toBe("/groups");
  await signIn(page, "ops");
  await expect(heading(page)).toContainText("Groups");
});

test("a caller without a role sees the reason", async ({ page, world }) => {
  await page.goto(world.url);
  await signIn(page, "none");
  await expect(page.getByRole("alert").first()).toContainText("token none lacks the role view");
});

test("a failed sign-in by the issuer shows the reason on the page", async ({ page, world }) => {
  await page.goto(`${world.url}/groups`);
  await page.getByRole("link", { name: "Sign in with your organization" }).click();
  await expect(page.getByRole("alert")).toContainText('sign-in failed: the issuer answers "access_denied"');
  await expect(heading(page)).toHaveText("Sign in");
  expect(new URL(page.url()).pathname).toBe("/groups");
  await page.reload();
  await expect(heading(page)).toHaveText("Sign in");
  await expect(page.getByRole("alert")).toHaveCount(0);
});
