// The two ways in which a user starts a Shiny app on Rookery.

import { after, before, test } from 'node:test';

import { closeAll, launch, open, shinyIdle } from './support/browser.mjs';
import { Server, library, patience } from './support/server.mjs';

const timeout = 4 * patience;
const skip = library ? false : "Debian's httpuv has neither";
let browser;

before(async () => {
  browser = await launch();
}, { timeout });

after(async () => {
  await closeAll();
  await Server.stopAll();
});

const ways = {
  'serve()': 'rookery::serve("examples/shiny", port = 0L)',
  'runApp() after use_compat()':
    'rookery::use_compat(); shiny::runApp("examples/shiny", launch.browser = FALSE)',
};

for (const [name, code] of Object.entries(ways)) {
  test(`the Shiny example by ${name}`, { timeout, skip }, async () => {
    const server = await Server.expression(code);
    const page = await open(browser, server.url);
    await shinyIdle(page);
    await page.evaluate(() => window.Shiny.setInputValue('bins:shiny.number', 33));
    await page.waitForFunction(
      () => document.querySelector('#summary').textContent.startsWith('272 eruptions in 33 bins of '),
    );
    await server.line(/session started: /);
    await page.context().close();
    await server.line(/session ended: /);
    await server.stop();
  });
}
