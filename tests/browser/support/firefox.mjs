// Firefox without a driver between: Marionette, which geckodriver speaks as well, is JSON with its length before it.

import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { patience } from './server.mjs';

export const program = process.env.FIREFOX ?? '/usr/bin/firefox-esr';

/** Whether it is installed: `make conformance` does that, `make test` does not (80 MB to fetch, 310 on the disk). */
export const isHere = existsSync(program);

/** The profile: Firefox picks a free port and writes it there; it asks its maker for nothing. */
const preferences = {
  'marionette.port': 0,
  'app.update.enabled': false,
  'browser.shell.checkDefaultBrowser': false,
  'browser.safebrowsing.malware.enabled': false,
  'browser.safebrowsing.phishing.enabled': false,
  'datareporting.policy.dataSubmissionEnabled': false,
  'extensions.systemAddon.update.enabled': false,
  'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false,
  'services.settings.server': 'data:,#remote-settings-dummy/v1',
  'toolkit.telemetry.reportingpolicy.firstRun': false,
};

export class Firefox {
  #child;
  #profile;
  #socket;
  #read = Buffer.alloc(0);
  #waiting = new Map();
  #id = 0;

  /** A browser that takes any certificate. */
  static async launch() {
    const firefox = new Firefox();
    try {
      await firefox.#connect();
      await firefox.#call('WebDriver:NewSession', { acceptInsecureCerts: true });
      await firefox.#call('WebDriver:SetTimeouts', { script: patience, pageLoad: patience });
    } catch (error) {
      await firefox.close();
      throw error;
    }
    return firefox;
  }

  constructor() {
    this.#profile = mkdtempSync(join(tmpdir(), 'rookery-firefox-'));
    const lines = Object.entries(preferences).map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`);
    writeFileSync(join(this.#profile, 'user.js'), lines.join(''));
    // setpriv (util-linux): the kernel ends it when the test process dies, however it dies.
    const line = ['--pdeathsig', 'KILL', program, '--headless', '--marionette', '--no-remote', '--profile', this.#profile];
    const env = { ...process.env, HOME: this.#profile, MOZ_DISABLE_CONTENT_SANDBOX: '1' };
    this.#child = spawn('setpriv', line, { env, stdio: 'ignore' });
  }

  /** Opens a page, to the end of its loading. */
  async goto(url) {
    await this.#call('WebDriver:Navigate', { url });
  }

  /** What a function body returns in the page. */
  async evaluate(script) {
    const { value } = await this.#call('WebDriver:ExecuteScript', { script, args: [] });
    return value;
  }

  /** Waits until an expression is true in the page. */
  async until(expression) {
    const end = Date.now() + patience;
    while (!await this.evaluate(`return Boolean(${expression})`)) {
      if (Date.now() > end) throw new Error(`not within ${patience} ms: ${expression}`);
      await sleep(50);
    }
  }

  async close() {
    const ended = new Promise((done) => this.#child.once('exit', done));
    this.#socket?.destroy();
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.kill('SIGKILL');
      await ended;
    }
    // Its other processes end a moment later, and may write until then.
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }

  async #connect() {
    const file = join(this.#profile, 'MarionetteActivePort');
    const end = Date.now() + patience;
    let port = 0;
    while (!(port > 0)) {
      if (Date.now() > end || this.#child.exitCode !== null) throw new Error(`${program} does not listen`);
      await sleep(50);
      if (existsSync(file)) port = Number(readFileSync(file, 'utf8'));
    }
    this.#socket = connect(port, '127.0.0.1');
    this.#socket.on('data', (bytes) => this.#take(bytes));
    const fail = (error) => {
      for (const { failed } of this.#waiting.values()) failed(error ?? new Error('Firefox has gone'));
      this.#waiting.clear();
    };
    this.#socket.on('error', fail).on('close', () => fail());
    await new Promise((done, failed) => this.#socket.once('connect', done).once('error', failed));
  }

  /** `length:JSON`, again and again; the first is a greeting. */
  #take(bytes) {
    this.#read = Buffer.concat([this.#read, bytes]);
    for (;;) {
      const colon = this.#read.indexOf(':');
      const length = Number(this.#read.subarray(0, Math.max(colon, 0)));
      if (colon < 0 || this.#read.length < colon + 1 + length) return;
      const message = JSON.parse(this.#read.subarray(colon + 1, colon + 1 + length));
      this.#read = this.#read.subarray(colon + 1 + length);
      if (!Array.isArray(message)) continue;
      const [, id, error, result] = message;
      const waiter = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) waiter?.failed(new Error(`${error.error}: ${error.message}`));
      else waiter?.done(result);
    }
  }

  #call(name, parameters) {
    const id = ++this.#id;
    const text = Buffer.from(JSON.stringify([0, id, name, parameters]));
    this.#socket.write(Buffer.concat([Buffer.from(`${text.length}:`), text]));
    return new Promise((done, failed) => this.#waiting.set(id, { done, failed }));
  }
}
