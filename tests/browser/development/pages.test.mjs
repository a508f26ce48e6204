// `rookery dev` in a real browser: an open page follows the app's files, errors are shown in the page, and the inputs of a
// Shiny app are kept. The pictures of the vignette Development (r/vignettes/development-*.png) are made here (support/pictures.mjs).

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { browser, shinyIdle, useBrowser } from '../support/browser.mjs';
import { appOf, develop, text } from '../support/develop.mjs';
import { picture } from '../support/pictures.mjs';
import { Server, library, patience } from '../support/server.mjs';

const timeout = 4 * patience;
const skip = library ? false : "with Debian's httpuv there is no rookery";

useBrowser();

const shinyApp = `library(shiny)
heading <- "First"
ui <- fluidPage(
  tags$head(tags$link(rel = "stylesheet", href = "style.css")),
  h1(heading, id = "heading"),
  sliderInput("bins", "Bins", 1, 50, 20), textInput("name", "Name", "nobody"),
  selectInput("colour", "Colour", c("red", "green", "blue")), checkboxInput("on", "On", FALSE),
  dateInput("day", "Day", "2026-01-02"), passwordInput("secret", "Secret"), uiOutput("more"),
  tags$img(id = "picture", src = "picture.svg"), textOutput("seen")
)
server <- function(input, output) {
  output$more <- renderUI(numericInput("number", "Number", 1))
  output$seen <- renderText(paste(
    input$bins, input$name, input$colour, input$on, input$day, input$secret, input$number
  ))
}
shinyApp(ui, server)
`;

const svg = (colour) => `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9" fill="${colour}"/></svg>`;

/** Marks the document, so that a reload can be noticed. */
const mark = (page) => page.evaluate(() => { window.marked = true; });
const isMarked = (page) => page.evaluate(() => window.marked === true);

test('the page of a Shiny app reloads after a save and keeps the inputs that were changed', { timeout, skip }, async () => {
  const it = await develop(appOf({ 'app.R': shinyApp, 'www/style.css': 'h1{color:rgb(255, 0, 0)}', 'www/picture.svg': svg('red') }));
  const { page } = it;
  await shinyIdle(page);
  await text(page, '#seen', '^20 nobody red FALSE 2026-01-02  1$');
  await page.fill('#name', 'Ada');
  await page.fill('#secret', 'hunter2');
  await page.evaluate(() => window.jQuery('#bins').data('ionRangeSlider').update({ from: 33 }));
  await page.check('#on');
  await page.evaluate(() => document.querySelector('#colour').selectize.setValue('blue'));
  await page.evaluate(() => window.jQuery('#day input').bsDatepicker('update', '2026-03-04').trigger('changeDate'));
  await page.fill('#number', '5');
  await text(page, '#seen', '^33 Ada blue TRUE 2026-03-04 hunter2 5$');
  await mark(page);
  it.write('app.R', shinyApp.replace('"First"', '"Second"'));
  await text(page, '#heading', '^Second$');
  assert.equal(await isMarked(page), false);
  // All but the password.
  await text(page, '#seen', '^33 Ada blue TRUE 2026-03-04  5$');
  // A default that the user has not touched follows the source; values that were changed stay through the next reload.
  it.write('app.R', shinyApp.replace('"First"', '"Third"').replace('"red", "green"', '"green", "red"').replace('"2026-01-02"', '"2026-05-06"'));
  await text(page, '#heading', '^Third$');
  await text(page, '#seen', '^33 Ada blue TRUE 2026-03-04  5$');
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await it.server.stop();
});

test('inputs survive a syntax error and its fix, also of modules and with choices that the server adds', { timeout, skip }, async () => {
  const app = `library(shiny)
ui <- fluidPage(
  h1("First", id = "heading"), sliderInput("bins", "Bins", 1, 50, 20),
  tabsetPanel(id = "tab", tabPanel("a"), tabPanel("b")), textInput(NS("module", "name"), "Name"),
  selectInput("plain", "Plain", character(), selectize = FALSE), selectInput("late", "Late", character()),
  textOutput("seen")
)
server <- function(input, output, session) {
  updateSelectInput(session, "plain", choices = c("x", "y", "z"))
  updateSelectInput(session, "late", choices = c("k", "l", "m"))
  output$seen <- renderText(paste(input$bins, input$tab, input[["module-name"]], input$plain, input$late))
}
shinyApp(ui, server)
`;
  const it = await develop(appOf({ 'app.R': app }));
  const { page } = it;
  await shinyIdle(page);
  await text(page, '#seen', '^20 a  x k$');
  await page.evaluate(() => window.jQuery('#bins').data('ionRangeSlider').update({ from: 7 }));
  await page.click('a[data-value="b"]');
  await page.fill('#module-name', 'Ada');
  await page.selectOption('#plain', 'z');
  await page.evaluate(() => document.querySelector('#late').selectize.setValue('m'));
  await text(page, '#seen', '^7 b Ada z m$');
  // Twice, and a reload of the page with the error changes nothing.
  it.write('app.R', `${app})`);
  await text(page, 'header', 'unexpected');
  it.write('app.R', `${app}}`);
  await text(page, 'pre b', '}');
  await page.reload();
  await text(page, 'header', 'unexpected');
  it.write('app.R', app.replace('"First"', '"Second"'));
  await text(page, '#heading', '^Second$');
  await text(page, '#seen', '^7 b Ada z m$');
  // A reload by the user begins with the values of the app.
  await shinyIdle(page);
  await page.reload();
  await text(page, '#seen', '^20 a  x k$');
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await it.server.stop();
});

test('style sheets and images are replaced without a reload', { timeout, skip }, async () => {
  const it = await develop(appOf({ 'app.R': shinyApp, 'www/style.css': 'h1{color:rgb(255, 0, 0)}', 'www/picture.svg': svg('red') }));
  const { page } = it;
  await shinyIdle(page);
  const colour = (wanted) => page.waitForFunction(
    (value) => getComputedStyle(document.querySelector('#heading')).color === value,
    wanted,
  );
  await colour('rgb(255, 0, 0)');
  await mark(page);
  it.write('www/style.css', 'h1{color:rgb(0, 0, 255)}');
  await colour('rgb(0, 0, 255)');
  it.write('www/style.css', 'h1{color:rgb(0, 128, 0)}');
  await colour('rgb(0, 128, 0)');
  await page.waitForFunction(() => document.querySelectorAll('link[href*="style.css"]').length === 1);
  const before = await page.getAttribute('#picture', 'src');
  it.write('www/picture.svg', svg('blue'));
  await page.waitForFunction((old) => document.querySelector('#picture').src !== old && document.querySelector('#picture').complete, before);
  assert.equal(await isMarked(page), true);
  // Another file of www/ reloads the page, and R goes on.
  it.write('www/script.js', '1');
  await page.waitForFunction(() => window.marked === undefined);
  assert.doesNotMatch(it.server.output, /reloading: the worker is replaced/);
  await page.context().close();
  await it.server.stop();
});

test('the page shows why the app does not start, until the next save', { timeout, skip }, async () => {
  const broken = shinyApp.replace('heading <- "First"', 'prepare <- function(data) {\n  stop("no column `price`")\n}\nheading <- prepare(faithful)');
  const it = await develop(appOf({ 'app.R': broken, 'www/style.css': '' }), ['--editor', 'vscode']);
  const { page, base } = it;
  await text(page, 'h1', 'no column `price`');
  await text(page, 'pre b', 'stop\\("no column `price`"\\)');
  assert.match(await page.getAttribute('summary a', 'href'), /^vscode:\/\/file\/.*\/app\.R:3$/);
  await picture(page, 'start-error', 'development-start-error');
  // Without the token, there are no details.
  const stranger = await (await browser.newContext()).newPage();
  const response = await stranger.goto(base);
  assert.equal(response.status(), 500);
  assert.doesNotMatch(await stranger.content(), /price/);
  it.write('app.R', `${shinyApp}\n)`);
  await text(page, 'header', 'unexpected');
  await text(page, 'pre b', '\\)');
  await picture(page, 'parse-error');
  it.write('app.R', shinyApp);
  await text(page, '#heading', '^First$');
  await text(stranger, '#heading', '^First$');
  await shinyIdle(page);
  // The page of an app that runs shows the error of the next start as well.
  it.write('app.R', broken);
  await text(page, 'h1', 'no column `price`');
  assert.deepEqual(page.problems, []);
  await stranger.context().close();
  await page.context().close();
  await it.server.stop();
});

const plainApp = (answer) => `
load_table <- function(path) {
  table <- list(rows = 1:3)
  check_rows(table)
}
check_rows <- function(table) {
  if (is.null(table$price)) {
    ${answer}
  }
  table
}
list(call = function(req) {
  load_table("prices.csv")
  list(
    status = 200L, body = "<!doctype html><head><script nonce='abc'></script></head><h1>fine</h1>",
    headers = list(
      "Content-Type" = "text/html",
      "Content-Security-Policy" = "default-src 'none'; script-src 'nonce-abc'; connect-src 'self'"
    )
  )
})
`;

test('the page of a handler that fails shows its source, only with the token', { timeout, skip }, async () => {
  const it = await develop(appOf({ 'app.R': plainApp('stop("the table has no column `price`")') }), ['--editor', 'vscode']);
  const { page, base } = it;
  await page.goto(`${base}prices?currency=EUR&api_key=s3cret-key`);
  await text(page, 'h1', 'the table has no column `price`');
  await text(page, 'pre b', 'stop\\("the table has no column');
  assert.match(await page.getAttribute('details[open] summary a', 'href'), /^vscode:\/\/file\/.*\/app\.R:8$/);
  const content = await page.content();
  assert.match(content, /load_table/);
  assert.match(content, /EUR/);
  assert.doesNotMatch(content, /s3cret-key|rookery-token-\d+=/);
  await picture(page, 'handler-error', 'development-handler-error');
  const context = await browser.newContext();
  const stranger = await context.newPage();
  assert.equal((await stranger.goto(base)).status(), 500);
  assert.match(await stranger.content(), /500 Internal Server Error/);
  assert.doesNotMatch(await stranger.content(), /price|load_table/);
  // Text for clients that want no page, and nothing for those without the token.
  const asText = { headers: { accept: 'application/json' } };
  assert.match(await (await page.request.get(base, asText)).text(), /load_table/);
  const refused = await context.request.get(base, asText);
  assert.equal(refused.status(), 500);
  assert.doesNotMatch(await refused.text(), /price|load_table/);
  // The page of the error reloads after the save, and then the one with a strict policy.
  it.write('app.R', plainApp('return(TRUE)'));
  await text(page, 'h1', '^fine$');
  assert.equal(await page.evaluate(() => document.querySelector('script[src*="reload.js"]').nonce), 'abc');
  it.write('app.R', plainApp('return(TRUE)').replace('fine', 'better'));
  await text(page, 'h1', '^better$');
  assert.deepEqual(page.problems, []);
  await context.close();
  await page.context().close();
  await it.server.stop();
});

test('an error in the ui function of a Shiny app shows its source, only with the token', { timeout, skip }, async () => {
  const app = (answer) => `library(shiny)
page_of <- function(request) {
  ${answer}
}
ui <- function(request) {
  page_of(request)
}
shinyApp(ui, function(input, output) {})
`;
  const fine = app('fluidPage(h1("fine"))');
  const it = await develop(appOf({ 'app.R': fine }), ['--editor', 'vscode']);
  const { page, base } = it;
  await text(page, 'h1', '^fine$');
  // The open page reloads, and becomes the page of the error.
  it.write('app.R', app('stop("no page for you")'));
  await text(page, 'h1', '^no page for you$');
  await text(page, 'pre b', 'stop\\("no page for you"\\)');
  assert.match(await page.getAttribute('details[open] summary a', 'href'), /^vscode:\/\/file\/.*\/app\.R:3$/);
  const calls = await page.evaluate(() => [...document.querySelectorAll('main > details > summary code')].map((code) => code.textContent));
  assert.deepEqual(calls, ['stop("no page for you")', 'page_of(request)']);
  await text(page, 'main', 'calls of packages are not shown');
  const response = await page.goto(`${base}?api_key=s3cret-key`);
  assert.equal(response.status(), 500);
  assert.doesNotMatch(await page.content(), /s3cret-key/);
  const context = await browser.newContext();
  const stranger = await context.newPage();
  assert.equal((await stranger.goto(base)).status(), 500);
  assert.doesNotMatch(await stranger.content(), /no page for you|page_of/);
  await page.goto(base);
  it.write('app.R', fine);
  await text(page, 'h1', '^fine$');
  assert.deepEqual(page.problems, []);
  await context.close();
  await page.context().close();
  await it.server.stop();
});

test('a page whose policy forbids scripts is left alone, and this is said once', { timeout, skip }, async () => {
  const strict = plainApp('return(TRUE)').replace("script-src 'nonce-abc'", "script-src 'none'");
  const it = await develop(appOf({ 'app.R': strict }));
  await it.page.goto(it.base);
  await it.page.goto(it.base);
  assert.doesNotMatch(await it.page.content(), /__rookery__/);
  await it.server.line(/the page does not reload by itself, because its Content-Security-Policy/);
  assert.equal(it.server.matching(/does not reload by itself/).length, 1);
  await it.page.context().close();
  await it.server.stop();
});

test('pages reload over HTTPS, and those of a static site as well', { timeout, skip }, async () => {
  const site = appOf({ 'index.html': '<!doctype html><head><title>a</title></head><h1>one</h1>', 'a/b.html': '<!doctype html><head></head><h1>deep</h1>' });
  const server = Server.command(['dev', site, '--port', '0', '--open=off', '--log', 'none', '--tls', 'dev']);
  const url = (await server.line(/^Serving on (https:\S+)/))[1];
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  await page.goto(`${url}/a/b.html`);
  // Wait for the WebSocket, since a change before it is found by the version.
  writeFileSync(join(site, 'a/b.html'), '<!doctype html><head></head><h1>deeper</h1>');
  await text(page, 'h1', '^deeper$');
  await context.close();
  await server.stop();
});
