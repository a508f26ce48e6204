// Starts an R process that serves, and knows what it prints.
//
// ROOKERY_LIB names the library that holds rookery and its httpuv (default: .local/lib, where `make install` puts them).
// Set to nothing, Debian's httpuv serves instead: that is how the tests themselves are tested.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const support = dirname(fileURLToPath(import.meta.url));

/** The root of the repository. */
export const root = resolve(support, '../../..');

/** The library under test; empty for Debian's httpuv. */
export const library = process.env.ROOKERY_LIB ?? resolve(root, '.local/lib');

/** The message in a line of a JSON log, and any other line as it is. */
function messageOf(line) {
  try {
    return JSON.parse(line).message ?? line;
  } catch {
    return line;
  }
}

/** Long enough for a machine that is busy with something else; nothing waits this long when all is well. */
export const patience = 60_000;

const running = new Set();

export class Server {
  #child;
  #exit;
  #lines = [];
  #waiting = new Set();

  /** Serves the Shiny app in a folder, given from the root of the repository. */
  static async shiny(folder) {
    const server = new Server([resolve(support, 'shiny.R'), resolve(root, folder)]);
    const url = await server.listening();
    const about = JSON.parse((await server.line(/^(\{.*\})$/))[1]);
    return server.#ready(url, `httpuv ${about.httpuv} from ${about.from}, shiny ${about.shiny}`, about);
  }

  /** Ends every server that still runs: for the end of a file of tests, whatever failed in it. */
  static async stopAll() {
    await Promise.all([...running].map((server) => server.stop()));
  }

  /** Evaluates R code that serves, with rookery's library in front and its httpuv not: the code is to see to that. */
  static async expression(code) {
    const server = new Server(['-e', code], { R_LIBS: resolve(root, library) }, []);
    return server.#ready(await server.listening(), code);
  }

  /** Serves an app with the certificate to develop with. */
  static https(app) {
    return Server.expression(`rookery::serve("${app}", port = 0L, log = TRUE, tls = "dev")`);
  }

  /** Runs a script that serves on `PORT`, here any that is free, and prints its address once it listens there. */
  static async script(file, env = {}) {
    const server = new Server([resolve(root, file)], { PORT: '0', ...env });
    const address = await server.line(/^(http:\S+)/);
    return server.#ready(address[1], file);
  }

  /** The command `rookery` of the library, as a user types it. */
  static command(args, env = {}) {
    return new Server(args, env, undefined, [resolve(root, library, 'rookery/exec/rookery')]);
  }

  constructor(
    args,
    env = {},
    front = library ? [resolve(root, 'scripts/with-rookery'), resolve(root, library)] : [],
    program = ['Rscript', '--no-environ'],
  ) {
    const profile = library ? {} : { R_PROFILE_USER: `${support}/baseline.Rprofile` };
    // setpriv (util-linux): the kernel ends R when the test process dies, however it dies.
    this.#child = spawn('setpriv', ['--pdeathsig', 'KILL', ...front, ...program, ...args], {
      cwd: root,
      env: { ...process.env, LC_ALL: 'C.UTF-8', ...profile, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    running.add(this);
    this.#exit = new Promise((done) => {
      this.#child.on('error', (error) => this.#add(`cannot start R: ${error.message}`));
      this.#child.on('close', (code, signal) => {
        running.delete(this);
        done({ code, signal });
        for (const waiter of this.#waiting) waiter.ended(code ?? signal);
      });
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      let rest = '';
      stream.setEncoding('utf8').on('data', (text) => {
        const lines = (rest + text).split('\n');
        rest = lines.pop();
        lines.forEach((line) => this.#add(line));
      });
    }
  }

  #add(line) {
    this.#lines.push(messageOf(line));
    for (const waiter of this.#waiting) waiter.look();
  }

  #ready(url, what, about) {
    this.url = url.replace(/\/$/, '');
    const maps = readFileSync(`/proc/${this.#child.pid}/maps`, 'utf8');
    const loaded = [...new Set(maps.match(/\S+\/libs\/(?:rookery|httpuv)\.so$/gm) ?? [])];
    console.log(`${what}; native code: ${loaded.join(', ')}`);
    if (library) {
      assert.ok(loaded.some((path) => path.endsWith('/rookery.so')), 'rookery is not what serves');
      assert.ok(!loaded.some((path) => path.startsWith('/usr/')), "Debian's httpuv is loaded");
      assert.ok(about?.rookery ?? true, 'the httpuv that was loaded is not the one over rookery');
    } else {
      assert.ok(loaded.some((path) => path.endsWith('/httpuv.so')), 'httpuv is not what serves');
    }
    return this;
  }

  /** All that was printed so far, on stdout and stderr. */
  get output() {
    return this.#lines.join('\n');
  }

  /** The lines so far that match. */
  matching(pattern) {
    return this.#lines.map((line) => line.match(pattern)).filter(Boolean);
  }

  /** Waits until `count` lines match; the last of them. Fails when R ends first, or after `patience`. */
  line(pattern, count = 1) {
    return new Promise((found, failed) => {
      const finish = (settle, value) => {
        clearTimeout(timer);
        this.#waiting.delete(waiter);
        settle(value);
      };
      const fail = (why) => finish(failed, new Error(`${why} before ${count} x ${pattern}. It printed:\n${this.output}`));
      const waiter = {
        look: () => {
          const lines = this.matching(pattern);
          if (lines.length >= count) finish(found, lines[count - 1]);
        },
        ended: (status) => fail(`R ended (${status})`),
      };
      const timer = setTimeout(() => fail(`${patience / 1000} s went by`), patience);
      this.#waiting.add(waiter);
      waiter.look();
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) waiter.ended('already');
    });
  }

  /**
   * Waits until the server that prints its address accepts connections, and returns the address. `shiny::runApp()` prints its line
   * before it binds the port.
   */
  async listening() {
    const url = (await this.line(/^(?:Serving|Listening) on (https?:[^ ]+)/))[1];
    const { hostname, port } = new URL(url);
    const address = { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) };
    const accepts = () => new Promise((done) => {
      const socket = connect(address);
      socket.on('connect', () => { socket.destroy(); done(true); }).on('error', () => done(false));
    });
    const end = Date.now() + patience;
    while (!await accepts()) {
      if (Date.now() > end || !running.has(this)) assert.fail(`nothing accepts connections at ${url}. R printed:\n${this.output}`);
      await new Promise((done) => { setTimeout(done, 20); });
    }
    return url;
  }

  /** The URL of the live page with its token, which `rookery live` gets over the Unix socket. */
  async livePage() {
    const [, pid] = await this.line(/^ +Live page: +`rookery live (\d+)` opens it/);
    const program = resolve(root, library, 'rookery/exec/rookery');
    return execFileSync(program, ['live', pid, '--no-open'], { encoding: 'utf8' }).trim();
  }

  /** Sends a signal. */
  tell(name) {
    this.#child.kill(name);
  }

  /** Sends a signal and waits for the end: `{ code, signal }`. */
  async signal(name) {
    this.#child.kill(name);
    return this.#exit;
  }

  /** Ends the server, whatever state it is in. */
  async stop() {
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), patience);
    const end = await this.signal('SIGTERM');
    clearTimeout(timer);
    return end;
  }
}
