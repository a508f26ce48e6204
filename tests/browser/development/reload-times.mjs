// Prints how long a page of `rookery dev` takes from a save until it shows the new app, with and without the spare R process.
//
//   node tests/browser/development/reload-times.mjs [saves]
//
// The apps are hello Shiny and one with ggplot2, if that is installed. "R's start" is what the server prints: the time from the start
// of the R process, or of the spare's work, until the app is ready. The rest is the file watcher's 0.1 s and the browser.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { closeAll, launch, shinyIdle } from '../support/browser.mjs';
import { temporaryFolder } from '../support/folder.mjs';
import { Server, patience } from '../support/server.mjs';

const saves = Number(process.argv[2] ?? 5);
const hello = (heading) => `library(shiny)
ui <- fluidPage(h1("${heading}", id = "heading"), sliderInput("bins", "Bins", 1, 50, 20), plotOutput("plot"))
server <- function(input, output) output$plot <- renderPlot(hist(faithful$waiting, input$bins))
shinyApp(ui, server)
`;
const plots = (heading) => hello(heading)
  .replace('library(shiny)', 'library(shiny)\nlibrary(ggplot2)')
  .replace('hist(faithful$waiting, input$bins)', 'ggplot(faithful, aes(waiting)) + geom_histogram(bins = input$bins)');
// What an app that takes long to start usually does: it loads packages. Those of R itself, and others that are installed here.
const heavy = (heading) => plots(heading).replace(
  'library(shiny)',
  'for (name in c("plotly", "leaflet", "data.table", "lme4", "dplyr", "plumber", "rmarkdown", "testthat", "mgcv", "Matrix")) {\n'
    + '  suppressWarnings(requireNamespace(name, quietly = TRUE))\n}\nlibrary(shiny)',
);

const has = (name) => execFileSync('Rscript', ['-e', `cat(requireNamespace("${name}", quietly = TRUE))`]).toString() === 'TRUE';
const sleep = (time) => new Promise((done) => { setTimeout(done, time); });
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

async function measure(browser, name, source) {
  const app = mkdtempSync(join(temporaryFolder(), 'app-'));
  const file = join(app, 'app.R');
  writeFileSync(file, source('0'));
  const server = Server.command(['dev', app, '--port', '0', '--open=off', '--log', 'none']);
  const url = (await server.line(/ (http:\S+\?token=\S+)/))[1];
  const page = await browser.newPage();
  page.setDefaultTimeout(patience);
  await page.goto(url);
  await shinyIdle(page);
  for (const [how, pause] of [['with a spare R process', 9000], ['without', 0]]) {
    const times = { all: [], start: [] };
    for (let save = 1; save <= saves; save += 1) {
      const heading = `${how} ${save}`;
      await sleep(pause);
      const ready = server.matching(/is ready, (\d+) ms/).length;
      const began = performance.now();
      writeFileSync(file, source(heading));
      await page.waitForFunction((text) => document.querySelector('#heading')?.textContent === text, heading, { polling: 5 });
      times.all.push(performance.now() - began);
      times.start.push(Number((await server.line(/is ready, (\d+) ms/, ready + 1))[1]));
      await shinyIdle(page);
    }
    const all = Math.round(median(times.all));
    const start = median(times.start);
    console.log(`${name}, ${how}: ${all} ms from the save to the new page, of which R's start ${start} ms and the rest ${all - start} ms`
      + ` (medians of ${saves}; longest ${Math.round(Math.max(...times.all))} ms)`);
  }
  await page.close();
  await server.stop();
}

const browser = await launch();
try {
  await measure(browser, 'hello Shiny', hello);
  if (has('ggplot2')) {
    await measure(browser, 'ggplot2', plots);
    await measure(browser, 'ten packages', heavy);
  } else {
    console.log('ggplot2 is not installed');
  }
} finally {
  await closeAll();
  await Server.stopAll();
}
