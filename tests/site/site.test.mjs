// The website in Chromium, served by `rookery serve`: no errors, phone width, light and dark, search. SCREENSHOTS=folder
// keeps pictures of the pages for a person to look at.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { closeAll, launch } from '../browser/support/browser.mjs';
import { Server, patience, root } from '../browser/support/server.mjs';

const site = resolve(process.env.SITE ?? join(root, '.local/site'));
const pictures = process.env.SCREENSHOTS && resolve(process.env.SCREENSHOTS);
const timeout = 10 * patience;
const phone = { width: 390, height: 844 };
const desktop = { width: 1280, height: 800 };
let browser;
let url;

/** The pages that pkgdown has made: all but the crates' documentation, and the examples, which are apps. */
const pages = readdirSync(site, { recursive: true }).map((file) => relative(site, join(site, file)))
  .filter((file) => file.endsWith('.html') && !/^(crates|examples)\//.test(file)).sort();

before(async () => {
  assert.ok(existsSync(join(site, 'index.html')), `${site} has no website: run \`make site\``);
  if (pictures) mkdirSync(pictures, { recursive: true });
  browser = await launch();
  const server = Server.command(['serve', site, '--port', '0', '--log=none']);
  url = (await server.line(/^Serving on (http:\S+)/))[1];
}, { timeout });

after(async () => {
  await closeAll();
  await Server.stopAll();
});

/** Opens a page. What goes wrong there is in `page.complaints`. */
async function open(file, options = {}, base = `${url}/`) {
  const context = await browser.newContext({ viewport: desktop, ...options });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  page.complaints = [];
  page.on('pageerror', (error) => page.complaints.push(error.message));
  page.on('console', (message) => { if (message.type() === 'error') page.complaints.push(message.text()); });
  page.on('request', (sent) => { if (!/^(file|data):/.test(sent.url()) && !sent.url().startsWith(url)) page.complaints.push(`loads ${sent.url()}`); });
  page.on('response', (got) => { if (got.status() >= 400) page.complaints.push(`${got.status()} for ${got.url()}`); });
  await page.goto(base + file);
  return page;
}

const keep = async (page, name) => { if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`) }); };

test('every page works on a phone: no errors, nothing from elsewhere, no horizontal scroll', { timeout }, async () => {
  assert.ok(pages.length > 50, `only ${pages.length} pages`);
  const wrong = [];
  const page = await open('index.html', { viewport: phone });
  for (const file of pages) {
    await page.goto(`${url}/${file}`);
    const { wide, across } = await page.evaluate(() => ({
      wide: document.documentElement.scrollWidth,
      across: [...document.querySelectorAll('main *')].filter((at) => at.getBoundingClientRect().right > innerWidth + 1 && !at.closest('pre, table, figure, nav'))
        .map((at) => at.tagName + at.className).slice(0, 3),
    }));
    if (wide > phone.width || across.length > 0) wrong.push(`${file} is ${wide} px wide: ${across}`);
  }
  assert.deepEqual([...wrong, ...page.complaints], []);
  await page.context().close();
});

for (const [name, viewport] of [['desktop', desktop], ['phone', phone]]) {
  test(`the front page shows what, a command, the live page and two plots on one screen (${name})`, { timeout }, async () => {
    for (const colorScheme of ['light', 'dark']) {
      const page = await open('index.html', { viewport, colorScheme });
      await page.waitForFunction(() => [...document.images].every((image) => image.complete && (image.naturalWidth > 0 || image.hidden)));
      for (const [what, selector, count] of [
        ['what it is', '.front h1', 1], ['the lead', '.front .lead', 1], ['the command', '.front pre', 1],
        ['the live page', `.front .live img.only-${colorScheme}`, 1], ['the plots', '.front .plot', 2],
      ]) {
        const found = page.locator(selector);
        assert.equal(await found.count(), count, what);
        for (const one of await found.all()) {
          assert.ok(await one.isVisible(), `${what} is visible`);
          const box = await one.boundingBox();
          assert.ok(box.y >= 0 && box.y + box.height <= viewport.height && box.x + box.width <= viewport.width, `${what} is on the screen: ${JSON.stringify(box)}`);
        }
      }
      await keep(page, `front-${name}-${colorScheme}`);
      await page.context().close();
    }
  });
}

test("the plots show the figures of the README's table", { timeout }, async () => {
  const rows = readFileSync(join(root, 'README.md'), 'utf8').split('\n').filter((line) => line.startsWith('| '));
  const page = await open('index.html');
  const plots = await page.locator('.plot dl').evaluateAll((lists) => lists.map((list) => [...list.querySelectorAll('dd')]
    .map((bar) => [bar.textContent.trim(), Number(bar.style.getPropertyValue('--part'))])));
  assert.equal(plots.length, 2);
  for (const plot of plots) {
    const figures = plot.map(([text]) => text);
    assert.ok(rows.some((row) => figures.every((figure, at) => row.split('|')[at + 2]?.trim().startsWith(figure))), `${figures} is a row`);
    const numbers = figures.map((figure) => Number(figure.replaceAll(',', '')));
    for (const [at, [, part]] of plot.entries()) {
      assert.ok(Math.abs(part - numbers[at] / Math.max(...numbers)) < 0.001, `the bar of ${figures[at]} is as long as the figure says`);
    }
  }
  await page.context().close();
});

/** Returns the texts of a page whose contrast with what is behind them is below 4.5, the least of WCAG's level AA. */
const faint = (page) => page.evaluate(() => {
  const channels = (colour) => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = channels(colour).map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      if (at.tagName === 'svg') {
        // The box that a text of a drawing lies in: the last one painted there.
        const [x, y] = [element.getBoundingClientRect().x + 2, element.getBoundingClientRect().y + 2];
        const boxes = [...at.querySelectorAll('rect')].filter((box) => {
          const { left, right, top, bottom } = box.getBoundingClientRect();
          return left <= x && x <= right && top <= y && y <= bottom;
        });
        if (boxes.length > 0) return getComputedStyle(boxes.at(-1)).fill;
      }
      const colour = getComputedStyle(at).backgroundColor;
      if (channels(colour)[3] > 0) return colour;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  const found = new Map();
  for (const element of document.querySelectorAll('body *')) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!hasText || !element.checkVisibility({ opacityProperty: true })) continue;
    const style = getComputedStyle(element);
    const [front, back] = [element.closest('svg') ? style.fill : style.color, behind(element)];
    const [a, b] = [light(front), light(back)].sort((one, other) => other - one);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.set(`${element.tagName}.${element.getAttribute('class')}: ${front} on ${back} is ${ratio.toFixed(2)}`, element.textContent.trim().slice(0, 40));
  }
  return [...found].map(([what, text]) => `${what} (${text})`);
});

for (const colorScheme of ['light', 'dark']) {
  test(`all text can be read (${colorScheme})`, { timeout }, async () => {
    for (const file of [
      'index.html', 'articles/how-it-works.html', 'articles/get-started.html', 'articles/deploy.html', 'articles/streaming.html',
      'articles/errors.html', 'articles/index.html', 'reference/index.html', 'reference/serve.html', 'reference/startServer.html',
      'operations.html', 'benchmarks.html',
    ]) {
      const page = await open(file, { colorScheme });
      assert.deepEqual(await faint(page), [], file);
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), colorScheme);
      await keep(page, `${file.replace(/\W/g, '-')}-${colorScheme}`);
      await page.context().close();
    }
  });
}

test('the button switches between light and dark, and the choice lasts', { timeout }, async () => {
  const page = await open('index.html', { colorScheme: 'light' });
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await back(), 'rgb(255, 255, 255)');
  await page.click('#theme');
  assert.equal(await back(), 'rgb(20, 24, 29)');
  assert.ok(await page.locator('.live img.only-dark').isVisible());
  assert.ok(!(await page.locator('.live img.only-light').isVisible()));
  await page.goto(`${url}/articles/https.html`);
  assert.equal(await back(), 'rgb(20, 24, 29)');
  await page.context().close();
});

for (const where of ['served', 'opened as a file']) {
  test(`the search finds functions, settings and words (${where})`, { timeout }, async () => {
    const base = where === 'served' ? `${url}/` : `${pathToFileURL(site).href}/`;
    for (const [file, words, leads] of [
      ['index.html', 'startServer', /reference\/startServer\.html/],
      ['articles/https.html', 'serve()', /reference\/serve\.html/],
      ['reference/serve.html', 'worker_timeout', /settings\.html#worker_timeout$/],
      ['reference/index.html', 'sse_event', /reference\/sse_response\.html/],
      ['operations.html', 'behind caddy', /articles\/deploy\.html#behind-caddy$/],
    ]) {
      const page = await open(file, {}, base);
      await page.keyboard.press('/');
      await page.keyboard.type(words);
      await page.locator('#found [aria-selected="true"]').waitFor();
      if (file === 'index.html') await keep(page, 'search');
      await page.keyboard.press('Enter');
      await page.waitForURL(leads);
      const anchor = new URL(page.url()).hash.slice(1);
      if (anchor) assert.ok(await page.locator(`[id="${anchor}"]`).count(), `${anchor} is on the page`);
      assert.deepEqual(page.complaints, []);
      await page.context().close();
    }
    const page = await open('index.html', {}, base);
    await page.fill('#search', 'xyzzy nothing');
    await page.getByText('Nothing found.').waitFor();
    await page.context().close();
  });
}

test('a block of code is copied without its output', { timeout }, async () => {
  const page = await open('articles/streaming.html');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const block = page.locator('.code', { hasText: 'the price is' });
  await block.hover();
  await block.getByRole('button', { name: 'Copy' }).click();
  await block.getByRole('button', { name: 'Copied' }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'cat(sse_event("the price is\\n42", event = "price", id = "7"))');
  await page.context().close();
});

test('the table of contents leads to every section, and is gone on a phone', { timeout }, async () => {
  const page = await open('operations.html');
  const links = await page.locator('#toc a').evaluateAll((all) => all.map((link) => link.hash.slice(1)));
  assert.ok(links.length > 20, `${links.length} sections`);
  for (const id of links) assert.equal(await page.locator(`[id="${id}"]`).count(), 1, id);
  await page.setViewportSize(phone);
  assert.ok(!(await page.locator('#toc').isVisible()));
  await page.context().close();
});

test("the crates' documentation opens without errors", { timeout }, async () => {
  const page = await open('crates.html');
  const crates = await page.locator('main td a').evaluateAll((all) => all.map((link) => link.getAttribute('href')));
  assert.ok(crates.length > 10, `${crates.length} crates`);
  for (const crate of crates) await page.goto(`${url}/${crate}`);
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});
