// Requests without a pause, counted where they are made.

import { spawn, spawnSync } from 'node:child_process';
import { Agent, request } from 'node:http';
import { Agent as SecureAgent, request as secureRequest } from 'node:https';
import { resolve } from 'node:path';
import { after } from 'node:test';

import { root } from './server.mjs';

const running = new Set();
// A test that fails does not end its load, which would keep the process.
after(() => Promise.all([...running].map((load) => load.end())));

/** Some clients that ask for the same again and again, until it is told to end. */
export class Load {
  #agent;
  #isSecure;
  #is_over = false;
  #clients;
  #answered = 0;
  #failures = [];

  constructor(url, clients = 4) {
    this.#isSecure = url.startsWith('https:');
    const options = { keepAlive: true, maxSockets: clients };
    this.#agent = this.#isSecure ? new SecureAgent({ ...options, rejectUnauthorized: false }) : new Agent(options);
    this.#clients = Array.from({ length: clients }, () => this.#client(url));
    running.add(this);
  }

  async #client(url) {
    while (!this.#is_over) {
      try {
        const status = await this.#ask(url);
        if (status === 200) this.#answered += 1;
        else this.#failures.push(`status ${status}`);
      } catch (error) {
        this.#failures.push(error.message);
      }
    }
  }

  #ask(url) {
    return new Promise((done, failed) => {
      const ask = this.#isSecure ? secureRequest : request;
      ask(url, { agent: this.#agent, headers: { Accept: 'text/html' } }, (response) => {
        response.resume().on('end', () => done(response.statusCode)).on('error', failed);
      }).on('error', failed).end();
    });
  }

  get answered() {
    return this.#answered;
  }

  get failures() {
    return this.#failures;
  }

  /** Ends it: `{ answered, failures }`, a failure being whatever was no answer with status 200. */
  async end() {
    this.#is_over = true;
    running.delete(this);
    await Promise.all(this.#clients);
    this.#agent.destroy();
    return { answered: this.#answered, failures: this.#failures };
  }
}

/** How each program is run for some seconds, and what it says of its requests: those that were answered well, and those that were not. */
const programs = {
  wrk: {
    words: (url, clients) => ['-t1', `-c${clients}`, '-d5s', '--timeout', '60s', '-s', resolve(root, 'bench/load/wrk.lua'), url],
    read(text) {
      const { requests, ...told } = JSON.parse(text.match(/^BENCH (.*)$/m)[1]);
      const { connect_errors, read_errors, write_errors, status_errors, timeouts } = told;
      return [requests - status_errors, connect_errors + read_errors + write_errors + status_errors + timeouts];
    },
  },
  h2load: {
    words: (url, clients) => ['-t1', `-c${clients}`, '-m4', '-n200', url],
    read(text) {
      const [, all, started, succeeded] = text.match(/^requests: (\d+) total, (\d+) started, .* (\d+) succeeded/m);
      // A connection that ends in order (GOAWAY), as that of a worker that is replaced does, serves all that was begun on it; h2load
      // makes no other, and calls those failed that it has not begun.
      return [Number(succeeded), (Number(started) || all) - succeeded];
    },
  },
};

/** Whether a program to make load with is here. */
export function isHere(name) {
  return spawnSync(name, ['--version']).error === undefined;
}

/** The requests of wrk (HTTP/1.1) or h2load (HTTP/2 over TLS), run again and again until it is told to end. */
export class ProgramLoad {
  answered = 0;
  /** What it printed where not all was answered well. */
  failures = [];
  #isOver = false;
  #running;

  constructor(name, url, clients) {
    this.#running = this.#run(name, programs[name], url, clients);
  }

  async #run(name, { words, read }, url, clients) {
    while (!this.#isOver) {
      const child = spawn(name, words(url, clients), { stdio: ['ignore', 'pipe', 'pipe'] });
      let printed = '';
      for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => { printed += text; });
      const code = await new Promise((done) => { child.on('close', done); });
      const [answered, failed] = code === 0 ? read(printed) : [0, 1];
      this.answered += answered;
      if (failed > 0) this.failures.push(`${name} ended with ${code} and ${failed} failures: ${printed}`);
    }
  }

  async end() {
    this.#isOver = true;
    await this.#running;
  }
}
