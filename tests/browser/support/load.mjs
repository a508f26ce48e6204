// Requests without a pause, counted where they are made.

import { Agent, request } from 'node:http';

/** Some clients that ask for the same again and again, until it is told to end. */
export class Load {
  #agent;
  #is_over = false;
  #clients;
  #answered = 0;
  #failures = [];

  constructor(url, clients = 4) {
    this.#agent = new Agent({ keepAlive: true, maxSockets: clients });
    this.#clients = Array.from({ length: clients }, () => this.#client(url));
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
      request(url, { agent: this.#agent, headers: { Accept: 'text/html' } }, (response) => {
        response.resume().on('end', () => done(response.statusCode)).on('error', failed);
      }).on('error', failed).end();
    });
  }

  /** Ends it: `{ answered, failures }`, a failure being whatever was no answer with status 200. */
  async end() {
    this.#is_over = true;
    await Promise.all(this.#clients);
    this.#agent.destroy();
    return { answered: this.#answered, failures: this.#failures };
  }
}
