// Apps that a test develops: their files, and a page of `rookery dev` with the token.

import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { browser } from './browser.mjs';
import { temporaryFolder } from './folder.mjs';
import { Server, patience } from './server.mjs';

const folder = temporaryFolder();

/** Writes files of an app into a new folder. */
export function appOf(files) {
  const app = mkdtempSync(join(folder, 'app-'));
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(join(app, name, '..'), { recursive: true });
    writeFileSync(join(app, name), content);
  }
  return app;
}

/** Serves an app, and opens the address that `rookery dev` opens. */
export async function develop(app, options = [], context = {}) {
  const server = Server.command(['dev', app, '--port', '0', '--open=off', '--log', 'none', ...options]);
  const url = (await server.line(/ (https?:\S+\?token=\S+)/))[1];
  const opened = await browser.newContext({ ignoreHTTPSErrors: true, ...context });
  opened.setDefaultTimeout(patience);
  const page = await opened.newPage();
  page.problems = [];
  // Debian's shiny has no datepicker of this name.
  page.on('pageerror', (error) => { if (!/datepicker/.test(error)) page.problems.push(String(error)); });
  page.on('console', (line) => { if (/Content.Security.Policy/i.test(line.text())) page.problems.push(line.text()); });
  await page.goto(url);
  // The page that sets the cookie leads to the same address without the token.
  await page.waitForURL((at) => !at.search.includes('token'));
  return { server, page, app, base: page.url(), write: (name, text) => writeFileSync(join(app, name), text) };
}

/** Waits until the text of an element matches a pattern. */
export const text = (page, selector, wanted) => page.waitForFunction(
  ([where, pattern]) => new RegExp(pattern).test(document.querySelector(where)?.textContent ?? ''),
  [selector, wanted],
);
