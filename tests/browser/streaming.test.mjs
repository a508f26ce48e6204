// The pages of examples/tokens.R and examples/progress.R: server-sent events as their readers see them.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, open, text, useBrowser } from './support/browser.mjs';
import { Server, patience } from './support/server.mjs';

const timeout = 4 * patience;
let tokens;
let slow;
let progress;

useBrowser(async () => {
  [tokens, slow, progress] = await Promise.all([
    Server.script('examples/tokens.R'),
    // Its shortest answer takes 13 s: what is looked at in the middle is the middle, however busy the machine is.
    Server.script('examples/tokens.R', { THINKING: '1' }),
    Server.script('examples/progress.R'),
  ]);
});

test('an answer comes to an end', { timeout }, async () => {
  const page = await open(browser, tokens.url);
  await page.click('button:text("Ask")');
  await text(page, '#state', 'done');
  const answer = await page.textContent('#answer');
  assert.ok(answer.trim().split(' ').length > 12);
  assert.equal(answer.trim().split(' ').length, Number(await page.textContent('#count')));
  assert.ok(await page.isDisabled('#stop'));
  await page.context().close();
});

test('its tokens come while others are made, and Stop ends it at the server', { timeout }, async () => {
  const page = await open(browser, slow.url);
  await page.click('button:text("Ask")');
  await page.waitForFunction(() => Number(document.querySelector('#count').textContent) >= 2);
  assert.equal(await page.textContent('#state'), 'answering');
  await page.click('#stop');
  await text(page, '#state', 'stopped');
  await slow.line(/An answer ended after [0-9.]+ s: client/);
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
