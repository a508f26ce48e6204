// The pages of examples/tokens.R and examples/progress.R: server-sent events as their readers see them.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { closeAll, launch, open, text } from './support/browser.mjs';
import { Server, patience } from './support/server.mjs';

const timeout = 4 * patience;
let browser;
let tokens;
let progress;

before(async () => {
  [tokens, progress, browser] = await Promise.all([
    Server.script('examples/tokens.R'),
    Server.script('examples/progress.R'),
    launch(),
  ]);
}, { timeout });

after(async () => {
  await closeAll();
  await Server.stopAll();
});

test('an answer comes token by token, and to an end', { timeout }, async () => {
  const page = await open(browser, tokens.url);
  await page.click('button:text("Ask")');
  await page.waitForFunction(() => Number(document.querySelector('#count').textContent) >= 3);
  // Not all at once: the page shows tokens while more are made.
  assert.equal(await page.textContent('#state'), 'answering');
  await text(page, '#state', 'done');
  const answer = await page.textContent('#answer');
  assert.equal(answer.trim().split(' ').length, Number(await page.textContent('#count')));
  await page.context().close();
});

test('Stop ends it at the server', { timeout }, async () => {
  const page = await open(browser, tokens.url);
  await page.click('button:text("Ask")');
  await page.waitForFunction(() => Number(document.querySelector('#count').textContent) >= 2);
  await page.click('#stop');
  await text(page, '#state', 'stopped');
  await tokens.line(/An answer ended after [0-9.]+ s: client/);
  await page.context().close();
});

test('two pages follow one job, and the second one comes late', { timeout }, async () => {
  const first = await open(browser, progress.url);
  await text(first, '#state', 'connected');
  await first.click('#start');
  await first.waitForFunction(() => Number(document.querySelector('#percent').textContent) >= 5);
  const second = await open(browser, progress.url);
  await second.waitForFunction(() => document.querySelector('#start').disabled
    && Number(document.querySelector('#percent').textContent) >= 5);
  await Promise.all([text(first, '#percent', '100'), text(second, '#percent', '100')]);
  assert.match(await second.textContent('#estimate'), /^3[.]1/);
  assert.equal(await second.textContent('#estimate'), await first.textContent('#estimate'));
  await Promise.all([first.context().close(), second.context().close()]);
});
