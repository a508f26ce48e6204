// The Shiny example in a real browser: examples/shiny/app.R.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { browser, open, shinyIdle, useBrowser } from './support/browser.mjs';
import { temporaryFolder } from './support/folder.mjs';
import { Server, patience } from './support/server.mjs';

const timeout = 4 * patience;
let server;
const folder = temporaryFolder();

useBrowser(async () => {
  server = await Server.shiny('examples/shiny');
});

/** Waits until the page's text is about so many bins. */
const summary = (page, bins) => page.waitForFunction(
  (start) => document.querySelector('#summary')?.textContent.startsWith(start),
  `272 eruptions in ${bins} bins of `,
);

/** The plot as the page shows it: fails while there is none. */
async function plot(page) {
  return page.waitForFunction(() => {
    const image = document.querySelector('#plot img');
    return image?.complete && image.naturalWidth > 100 && image.src;
  }).then((handle) => handle.jsonValue());
}

/** Drags the slider's handle to its right end, as a hand would. */
async function dragToTheEnd(page) {
  const handle = await page.locator('.irs-handle').boundingBox();
  const line = await page.locator('.irs-line').boundingBox();
  const y = handle.y + handle.height / 2;
  await page.mouse.move(handle.x + handle.width / 2, y);
  await page.mouse.down();
  await page.mouse.move(line.x + line.width * 0.8, y, { steps: 4 });
  await page.mouse.move(line.x + line.width + 20, y, { steps: 4 });
  await page.mouse.up();
}

test('moving the slider changes the plot and the text', { timeout }, async () => {
  const page = await open(browser, server.url);
  await summary(page, 20);
  const first = await plot(page);
  await dragToTheEnd(page);
  await summary(page, 50);
  await page.waitForFunction((old) => document.querySelector('#plot img').src !== old, first);
  const second = await plot(page);
  assert.match(second, /^data:image\/png;base64,/);
  await page.context().close();
});

for (const [name, size] of [['small.txt', 1000], ['large.bin', 20 * 1024 * 1024]]) {
  test(`an upload of ${size} bytes arrives`, { timeout }, async () => {
    const page = await open(browser, server.url);
    await shinyIdle(page);
    const path = join(folder, name);
    const bytes = Buffer.concat([Buffer.from('first line\nsecond line\n'), randomBytes(size)]).subarray(0, size);
    writeFileSync(path, bytes);
    await page.setInputFiles('#file', path);
    const md5 = createHash('md5').update(bytes).digest('hex');
    await page.waitForFunction((wanted) => document.querySelector('#upload')?.textContent.includes(wanted), md5);
    const cells = await page.locator('#upload td').allTextContents();
    assert.deepEqual(cells.map((cell) => cell.trim()), [name, String(size), md5]);
    await page.waitForFunction(
      () => document.querySelector('#lines').textContent.startsWith('first line\nsecond line\n'),
    );
    await page.context().close();
  });
}

test('the download is what R wrote', { timeout }, async () => {
  const page = await open(browser, server.url);
  await shinyIdle(page);
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#download')]);
  assert.equal(download.suggestedFilename(), 'faithful.csv');
  const path = join(folder, 'downloaded.csv');
  await download.saveAs(path);
  const expected = execFileSync('Rscript', ['-e', 'write.csv(faithful, stdout(), row.names = FALSE)']);
  assert.ok(expected.length > 2000);
  assert.deepEqual(readFileSync(path), expected);
  await page.context().close();
});

test('a bookmark brings the inputs back', { timeout }, async () => {
  const page = await open(browser, server.url);
  await shinyIdle(page);
  await page.fill('#title', 'Größe & 100 %');
  await dragToTheEnd(page);
  await summary(page, 50);
  await page.click('[id="._bookmark_"]');
  const url = await page.locator('.modal textarea').inputValue();
  assert.ok(url.startsWith(`${server.url}/?_inputs_&`), url);
  await page.context().close();

  const restored = await open(browser, url);
  await summary(restored, 50);
  assert.equal(await restored.inputValue('#title'), 'Größe & 100 %');
  await plot(restored);
  await restored.context().close();
});

test('ten browsers at once each get their own answers', { timeout }, async () => {
  const before = server.matching(/^session ended/).length;
  const pages = await Promise.all(Array.from({ length: 10 }, () => open(browser, server.url)));
  await Promise.all(pages.map(async (page, index) => {
    await shinyIdle(page);
    // Three moves each, all ten at once; the last one is the one that has to be shown.
    for (const bins of [index + 2, index + 12, index + 30]) {
      await page.evaluate((value) => window.Shiny.setInputValue('bins:shiny.number', value), bins);
      await summary(page, bins);
    }
    await plot(page);
  }));
  await Promise.all(pages.map((page) => page.context().close()));
  await server.line(/^session ended/, before + 10);
});
