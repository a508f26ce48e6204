// What Shiny needs of the server beneath a session: order, endings, and clients that leave at a bad moment.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';

import { browser, launch, open, shinyIdle, text, useBrowser } from './support/browser.mjs';
import { temporaryFolder } from './support/folder.mjs';
import { Server, library, patience } from './support/server.mjs';

const timeout = 4 * patience;
let server;
const folder = temporaryFolder();

useBrowser(async () => {
  server = await Server.shiny('tests/browser/apps/session');
});

/** Opens the app; `ended` resolves when the server has noticed that this session is over. */
async function session() {
  const started = server.matching(/^session started: (\w+)/).length;
  const page = await open(browser, server.url);
  const token = (await server.line(/^session started: (\w+)/, started + 1))[1];
  await text(page, '#count', '0');
  return { page, token, ended: () => server.line(new RegExp(`^session ended: ${token}`)) };
}

const tick = (page, from, to) => page.evaluate(([first, last]) => {
  for (let i = first; i <= last; i += 1) window.Shiny.setInputValue('tick', i, { priority: 'event' });
}, [from, to]);

const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i).join(' ');

test('50 events sent in one tick run their observer 50 times, in order', { timeout }, async () => {
  const { page } = await session();
  await tick(page, 1, 50);
  await text(page, '#count', '50');
  await text(page, '#order', numbers(1, 50));
  // Again, on a session that is no longer new.
  await tick(page, 51, 100);
  await text(page, '#count', '100');
  await text(page, '#order', numbers(1, 100));
  await page.context().close();
});

test('closing the page ends the session', { timeout }, async () => {
  const { page, token, ended } = await session();
  assert.equal(server.matching(new RegExp(`^session ended: ${token}`)).length, 0);
  await page.context().close();
  await ended();
});

test('a browser that is killed ends its session', { timeout }, async () => {
  const other = await launch();
  const started = server.matching(/^session started: (\w+)/).length;
  const page = await open(other, server.url);
  const token = (await server.line(/^session started: (\w+)/, started + 1))[1];
  await text(page, '#count', '0');
  await other.close();
  await server.line(new RegExp(`^session ended: ${token}`));
});

test('a reload while R computes a large output leaves a working page', { timeout }, async () => {
  const { page, token, ended } = await session();
  await page.click('#go');
  await server.line(new RegExp(`^large output begins: ${token}`));
  await page.reload();
  await ended();
  await text(page, '#count', '0');
  await tick(page, 1, 3);
  await text(page, '#order', '1 2 3');
  // And the output itself arrives whole when one stays for it.
  await page.click('#go');
  await page.waitForFunction(() => document.querySelector('#large-text')?.textContent.length === 4e6);
  await page.context().close();
});

test('a large output to a page that has gone disturbs nobody else', { timeout }, async () => {
  const leaver = await session();
  const stayer = await session();
  await leaver.page.click('#go');
  await server.line(new RegExp(`^large output begins: ${leaver.token}`));
  await leaver.page.context().close();
  await leaver.ended();
  await tick(stayer.page, 1, 5);
  await text(stayer.page, '#order', '1 2 3 4 5');
  await stayer.page.context().close();
});

test('an upload that is broken off disturbs nobody else', { timeout }, async () => {
  const { page } = await session();
  const { hostname, port } = new URL(server.url);
  // 1 MB of the 20 MB announced, and then a reset.
  await new Promise((done, failed) => {
    const socket = connect(Number(port), hostname, () => {
      socket.write(`POST /session/none/upload/none?w= HTTP/1.1\r\nHost: ${hostname}\r\n`
        + `Content-Length: ${20 * 1024 * 1024}\r\n\r\n`);
      socket.write(Buffer.alloc(1024 * 1024, 'x'), () => socket.resetAndDestroy());
    });
    socket.on('close', done).on('error', failed);
  });
  const path = join(folder, 'whole.bin');
  const bytes = Buffer.alloc(3 * 1024 * 1024, 'rookery ');
  writeFileSync(path, bytes);
  await page.setInputFiles('#file', path);
  await text(page, '#upload', `${bytes.length} ${createHash('md5').update(bytes).digest('hex')}`);
  await page.context().close();
});

test('a download of 8 MB arrives byte for byte', { timeout }, async () => {
  const { page } = await session();
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#download')]);
  const path = join(folder, 'pattern.bin');
  await download.saveAs(path);
  const expected = Buffer.alloc(8 * 1024 * 1024);
  for (let i = 0; i < expected.length; i += 1) expected[i] = i * 31 + (i >> 8);
  assert.equal(Buffer.compare(readFileSync(path), expected), 0);
  await page.context().close();
});

test('nothing of all this was an error or a warning to R', () => {
  // Debian's httpuv leaves the connection of the broken-off upload to R's collector, which says so.
  const known = library ? /(?!)/ : /^Warning: closing unused connection/;
  const told = server.matching(/^(Error|Warning|rookery:).*/).map(([line]) => line).filter((line) => !known.test(line));
  assert.deepEqual(told, []);
});
