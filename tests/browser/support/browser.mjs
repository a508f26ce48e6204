// Debian's Chromium, and the few things that more than one test does with a page.

import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before } from 'node:test';

import { chromium } from 'playwright-core';

import { Server, patience } from './server.mjs';

const running = new Set();

const options = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  timeout: patience,
};

const words = [
  '--no-sandbox', // CI runs as root
  '--disable-gpu',
  '--disable-dev-shm-usage',
  // Without these Chromium looks for its maker's hosts at every start.
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** How a context is opened. */
const visitor = { acceptDownloads: true, ignoreHTTPSErrors: true };

/** One browser for a file of tests; each test opens contexts of its own in it, which share nothing. */
export async function launch() {
  const browser = await chromium.launch({ ...options, args: words });
  running.add(browser);
  return browser;
}

/** The browser of a file of tests, once its tests have begun. */
export let browser;

/** Starts what a file of tests needs by `prepare`, and a browser, before its tests. Closes all browsers and servers after them. */
export function useBrowser(prepare = () => {}) {
  before(async () => {
    await prepare();
    browser = await launch();
  }, { timeout: 4 * patience });

  after(async () => {
    await closeAll();
    await Server.stopAll();
  });
}

/** The only context of a browser of its own, with a profile in a new folder in which these preferences are set. */
export async function launchPersistent(folder, preferences) {
  mkdirSync(join(folder, 'Default'), { recursive: true });
  writeFileSync(join(folder, 'Default', 'Preferences'), JSON.stringify(preferences));
  // ignoreHTTPSErrors is not for what a frame has its browser save.
  const args = [...words, '--ignore-certificate-errors'];
  const context = await chromium.launchPersistentContext(folder, { ...options, ...visitor, args });
  running.add(context);
  return patiently(context);
}

function patiently(context) {
  context.setDefaultTimeout(patience);
  context.setDefaultNavigationTimeout(patience);
  return context;
}

/** Closes every browser, also one that a failed test left. */
export async function closeAll() {
  await Promise.all([...running].map((browser) => browser.close()));
}

/** A page in a context of its own. Closing the page's context is closing a browser, as far as a server can tell. */
export async function open(browser, url) {
  const context = patiently(await browser.newContext(visitor));
  const page = await context.newPage();
  const response = await page.goto(url);
  assert.equal(response.status(), 200, `${url} was answered with status ${response.status()}`);
  return page;
}

/** Waits until a Shiny page is connected and has shown its outputs once. */
export async function shinyIdle(page) {
  await page.waitForFunction(
    () => window.Shiny?.shinyapp?.isConnected() && !document.documentElement.classList.contains('shiny-busy')
      && !document.querySelector('.recalculating') && window.Shiny.shinyapp.$values
      && Object.keys(window.Shiny.shinyapp.$values).length > 0,
  );
}

/** Waits until an element's text is `text`. */
export async function text(page, selector, expected) {
  await page.waitForFunction(
    ([where, wanted]) => document.querySelector(where)?.textContent.trim() === wanted,
    [selector, expected],
  );
}
