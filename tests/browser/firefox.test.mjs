// HTTPS in Firefox, which unlike Chromium opens a WebSocket within HTTP/2 (RFC 8441) wherever the server says that it may.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Firefox, isHere } from './support/firefox.mjs';
import { temporaryFolder } from './support/folder.mjs';
import { Server, patience } from './support/server.mjs';

const timeout = 4 * patience;
// `make conformance`, which installs it, does not take its absence for an answer.
const skip = !isHere && process.env.ROOKERY_FIREFOX !== 'required' && 'Firefox is not installed';
let firefox;

before(async () => {
  if (skip) return;
  // Where the certificate to develop with is kept.
  process.env.R_USER_DATA_DIR = temporaryFolder();
  firefox = await Firefox.launch();
}, { timeout });

after(async () => {
  await firefox?.close();
  await Server.stopAll();
});

/** Opens the app, plays with it, and says by what its page and its WebSocket came. */
async function visit() {
  const server = await Server.https('examples/shiny');
  await firefox.goto(server.url);
  await firefox.until(`document.querySelector('#summary')?.textContent.includes(' in 20 bins ')`);
  await firefox.evaluate(`window.Shiny.setInputValue('bins', 35)`);
  await firefox.until(`document.querySelector('#summary')?.textContent.includes(' in 35 bins ')`);
  const page = await firefox.evaluate(`return performance.getEntriesByType('navigation')[0].nextHopProtocol`);
  await firefox.goto('about:blank');
  const [, socket] = await server.line(/"GET \/websocket\/\S* HTTP\/(\S+)"/);
  await server.stop();
  return { page, socket };
}

test('the WebSocket of a page that came by HTTP/2 runs within HTTP/2', { timeout, skip }, async () => {
  assert.deepEqual(await visit(), { page: 'h2', socket: '2.0' });
});
