// Two pages talk to each other through examples/chat.R.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, open, text, useBrowser } from './support/browser.mjs';
import { Server, patience } from './support/server.mjs';

const timeout = 4 * patience;
let server;

useBrowser(async () => {
  server = await Server.script('examples/chat.R');
});

const lines = (page) => page.locator('#messages li').allTextContents();

const until = (page, line) => page.waitForFunction(
  (wanted) => [...document.querySelectorAll('#messages li')].some((item) => item.textContent === wanted),
  line,
);

async function say(page, name, message) {
  await page.fill('#name', name);
  await page.fill('#text', message);
  await page.click('button');
}

test('two pages talk to each other', { timeout }, async () => {
  const ada = await open(browser, server.url);
  await text(ada, '#state', 'connected');
  await until(ada, '1 in the room');
  const bob = await open(browser, server.url);
  await Promise.all([until(ada, '2 in the room'), until(bob, '2 in the room')]);

  await say(ada, 'Ada', 'Is anybody here? äöü 漢字 🦜');
  await until(bob, 'Ada: Is anybody here? äöü 漢字 🦜');
  await say(bob, 'Bob', '<b>Yes</b>');
  await until(ada, 'Bob: <b>Yes</b>');
  const conversation = ['Ada: Is anybody here? äöü 漢字 🦜', 'Bob: <b>Yes</b>'];
  assert.deepEqual((await lines(ada)).slice(-2), conversation);
  assert.deepEqual((await lines(bob)).slice(-2), conversation);

  await bob.context().close();
  await ada.waitForFunction(() => document.querySelector('#messages li:last-child').textContent === '1 in the room');
  await ada.context().close();
});

test('a hundred messages sent in one tick arrive in order', { timeout }, async () => {
  const [sender, reader] = await Promise.all([open(browser, server.url), open(browser, server.url)]);
  await Promise.all([until(sender, '2 in the room'), until(reader, '2 in the room')]);
  await sender.evaluate(() => {
    // `socket` is the page's own.
    for (let i = 0; i < 100; i += 1) socket.send(`message ${i}`);
  });
  await until(reader, 'message 99');
  const received = (await lines(reader)).filter((line) => line.startsWith('message'));
  assert.deepEqual(received, Array.from({ length: 100 }, (_, i) => `message ${i}`));
  await Promise.all([sender.context().close(), reader.context().close()]);
});

test('Ctrl-C ends the server and frees the port', { timeout }, async () => {
  const other = await Server.script('examples/chat.R');
  const page = await open(browser, other.url);
  await text(page, '#state', 'connected');
  await other.signal('SIGINT');
  await text(page, '#state', 'disconnected');
  await assert.rejects(fetch(other.url));
  await page.context().close();
});
