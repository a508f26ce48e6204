// HTTPS in a real browser: the Shiny example over HTTP/2, its WebSocket within the page's own connection (RFC 8441).

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, shinyIdle, useBrowser } from './support/browser.mjs';
import { temporaryFolder } from './support/folder.mjs';
import { Server, patience } from './support/server.mjs';

const timeout = 4 * patience;

useBrowser(async () => {
  // Where the certificate to develop with is kept.
  process.env.R_USER_DATA_DIR = temporaryFolder();
});

/** Opens the app, plays with it, and says how its page and its WebSocket came. */
async function visit() {
  const server = await Server.https('examples/shiny');
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  const devtools = await context.newCDPSession(page);
  await devtools.send('Network.enable');
  const handshake = new Promise((found) => {
    devtools.on('Network.webSocketHandshakeResponseReceived', ({ response }) => found(response));
  });
  await page.goto(server.url, { timeout: patience });
  await shinyIdle(page);
  const { status } = await handshake;
  await page.waitForFunction(() => document.querySelector('#summary')?.textContent.includes(' in 20 bins '));
  await page.evaluate(() => window.Shiny.setInputValue('bins', 35));
  await page.waitForFunction(() => document.querySelector('#summary')?.textContent.includes(' in 35 bins '));
  const protocol = await page.evaluate(() => performance.getEntriesByType('navigation')[0].nextHopProtocol);
  await context.close();
  await server.stop();
  return { protocol, status };
}

test('the WebSocket of a page that came by HTTP/2 runs within the same connection', { timeout }, async () => {
  assert.deepEqual(await visit(), { protocol: 'h2', status: 200 });
});

test('a page of 50 images, loaded twice, comes over one connection', { timeout }, async () => {
  const server = await Server.expression(`rookery::serve("tests/browser/apps/images.R", port = 0L, log = FALSE, tls = "dev")`);
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  const devtools = await context.newCDPSession(page);
  await devtools.send('Network.enable');
  const images = [];
  devtools.on('Network.responseReceived', ({ response }) => {
    if (response.url.includes('/image/')) images.push(response);
  });
  const whole = () => page.evaluate(() => [...document.images].filter((image) => image.naturalWidth === 8).length);
  await page.goto(server.url, { timeout: patience, waitUntil: 'load' });
  assert.equal(await whole(), 50);
  await page.reload({ timeout: patience, waitUntil: 'load' });
  assert.equal(await whole(), 50);
  assert.equal(await page.title(), '50');
  assert.equal(images.length, 100);
  assert.deepEqual([...new Set(images.map(({ protocol, status }) => `${protocol} ${status}`))], ['h2 200']);
  assert.equal(new Set(images.map(({ connectionId }) => connectionId)).size, 1);
  await context.close();
  await server.stop();
});
