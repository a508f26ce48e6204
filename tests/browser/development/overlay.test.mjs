// The overlay in which `rookery dev` shows the errors of a Shiny session, in a real browser. The picture of the vignette Development
// (r/vignettes/development-overlay.png) is made here (support/pictures.mjs).

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, shinyIdle, useBrowser } from '../support/browser.mjs';
import { appOf, develop, text } from '../support/develop.mjs';
import { picture } from '../support/pictures.mjs';
import { Server, library, patience } from '../support/server.mjs';

const timeout = 4 * patience;
const skip = library ? false : "with Debian's httpuv there is no rookery";

useBrowser();

const app = `library(shiny)
ui <- fluidPage(
  h1("Prices", id = "heading"),
  numericInput("year", "Year", 2026), passwordInput("pin", "Pin"), textInput("api_key", "Key", "k-123456"),
  fileInput("table", "Table"), textInput("name", "Name", "Ada"),
  actionButton("save", "Save"), textOutput("mean"), textOutput("seen")
)
mean_price <- function(year) {
  if (year > 2026) {
    stop("no prices of ", year)
  }
  year
}
server <- function(input, output, session) {
  output$mean <- renderText({
    mean_price(input$year)
  })
  output$seen <- renderText(paste(input$name, input$table$size))
  observeEvent(input$save, {
    stop("cannot save")
  })
}
shinyApp(ui, server)
`;

const overlay = (page) => page.locator('dialog[open]');
const error = (page) => overlay(page).frameLocator('iframe');
/** Fails unless the overlay is closed within the usual time. */
const closed = (page) => overlay(page).waitFor({ state: 'detached' });

test('an error of an output is shown over the page of its session, with its line and the inputs', { timeout, skip }, async () => {
  const it = await develop(appOf({ 'app.R': app }), ['--editor', 'vscode']);
  const { page, base } = it;
  const other = await page.context().newPage();
  await other.goto(base);
  const stranger = await (await browser.newContext()).newPage();
  await stranger.goto(base);
  for (const one of [page, other, stranger]) await shinyIdle(one);
  await page.fill('#pin', 'hunter2!');
  await page.setInputFiles('#table', { name: 'report-4711.csv', mimeType: 'text/csv', buffer: Buffer.from('abc') });
  await text(page, '#seen', '^Ada 3$');
  await page.fill('#year', '2027');
  await error(page).locator('h1', { hasText: 'no prices of 2027' }).waitFor();
  const shown = error(page).locator('body');
  assert.match(await shown.textContent(), /output\$mean/);
  assert.match(await error(page).locator('details[open] pre b').textContent(), /stop\("no prices of/);
  assert.match(await error(page).locator('details[open] summary a').getAttribute('href'), /^vscode:\/\/file\/.*\/app\.R:10$/);
  assert.match(await shown.textContent(), /[0-9]+ calls of packages are not shown/);
  const rows = await error(page).locator('tr').allTextContents();
  for (const row of ['api_key[masked]', 'nameAda', 'save0', 'year2027']) assert.ok(rows.includes(row), rows.join());
  assert.equal(rows.length, 4);
  const content = await shown.innerHTML();
  assert.doesNotMatch(content, /hunter2|k-123456|report-4711/);
  await picture(page, 'overlay', 'development-overlay');

  // Also from within the frame. The session stays open, and the same error does not come back.
  await error(page).locator('details[open] summary').first().click();
  await page.keyboard.press('Escape');
  await closed(page);
  await page.fill('#name', 'Grace');
  await text(page, '#seen', '^Grace');
  await page.fill('#year', '2028');
  await error(page).locator('h1', { hasText: 'no prices of 2028' }).waitFor();
  await page.getByRole('button', { name: 'Close' }).click();
  await closed(page);

  // Another session with the token sees only its own errors, and a client without the token none.
  assert.equal(await overlay(other).count(), 0);
  await other.fill('#year', '2030');
  await error(other).locator('h1', { hasText: 'no prices of 2030' }).waitFor();
  const frames = [];
  stranger.on('websocket', (socket) => {
    if (socket.url().endsWith('/__rookery__/live')) socket.on('framereceived', ({ payload }) => frames.push(String(payload)));
  });
  await stranger.reload();
  await shinyIdle(stranger);
  await stranger.fill('#year', '2029');
  await stranger.waitForSelector('#mean.shiny-output-error');
  assert.equal(await overlay(stranger).count(), 0);
  assert.equal(await overlay(page).count(), 0);

  // The page reloads with the fix.
  it.write('app.R', app.replace('"Prices"', '"Fixed"').replace('year > 2026', 'FALSE'));
  for (const one of [page, other, stranger]) await text(one, '#heading', '^Fixed$');
  await text(other, '#mean', '^2030$');
  assert.equal(await overlay(other).count(), 0);
  assert.ok(frames.some((frame) => frame.includes('"version"')), 'the socket of the page was observed');
  assert.ok(!frames.some((frame) => frame.includes('"error"')), 'no details of errors are sent without the token');
  assert.deepEqual(page.problems, []);
  await stranger.context().close();
  await page.context().close();
  await it.server.stop();
});

test('errors that end the session, and several at once, are shown as well', { timeout, skip }, async () => {
  const it = await develop(appOf({ 'app.R': app }));
  const { page } = it;
  await shinyIdle(page);
  await page.click('#save');
  await error(page).locator('h1', { hasText: 'cannot save' }).waitFor();
  assert.match(await error(page).locator('header').textContent(), /observer observeEvent\(input\$save\)/);
  // The page is not grey when the new app runs.
  it.write('app.R', app.replace('server <- function(input, output, session) {', '$&\n  stop("no server")'));
  await error(page).locator('h1', { hasText: 'no server' }).waitFor();
  assert.match(await error(page).locator('details[open] pre b').textContent(), /stop\("no server"\)/);
  it.write('app.R', app.replace('renderText(paste(', 'renderText(list(mean_price(input$year), ').replace('"Year", 2026', '"Year", 2027'));
  await overlay(page).getByText('Error 1 of 2').waitFor();
  const [first] = (await error(page).locator('header').textContent()).match(/output\$\w+/);
  await page.getByRole('button', { name: 'Next' }).click();
  await error(page).locator('header', { hasText: first === 'output$mean' ? 'output$seen' : 'output$mean' }).waitFor();
  await overlay(page).getByText('Error 2 of 2').waitFor();
  await page.getByRole('button', { name: 'Previous' }).click();
  await error(page).locator('header', { hasText: first }).waitFor();
  await page.keyboard.press('Escape');
  await closed(page);
  await page.context().close();
  await it.server.stop();
});

test('outside of development, a page shows no overlay', { timeout, skip }, async () => {
  const server = Server.command(['serve', appOf({ 'app.R': app }), '--port', '0', '--log', 'none']);
  const page = await (await browser.newContext()).newPage();
  await page.goto(await server.listening());
  await shinyIdle(page);
  await page.fill('#year', '2027');
  await page.waitForSelector('#mean.shiny-output-error');
  await server.line(/output\$mean: no prices of 2027/);
  assert.equal(await page.locator('dialog').count(), 0);
  assert.doesNotMatch(await page.content(), /__rookery__/);
  await page.context().close();
  await server.stop();
});
