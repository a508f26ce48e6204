// The live page: takes the server's events and shows them.

const byId = (id) => document.getElementById(id);
const charts = {
  rate: new Chart("rate", formatRate, 4, 1),
  latency: new Chart("latency", formatTime, 0.01, 0.0001),
  busy: new Chart("busy", formatPercent, 1, 0.01),
};
let history_ = new History();
let before = null;
let latest = null;
let errors = [];
let isPaused = false;

// ---- figures ----

/** Adds a snapshot to the history. Returns the figures of the time since the snapshot before. */
function measure(snapshot) {
  // `clock` is a monotonic clock, unlike the time of day. A restart of the machine resets `clock`.
  const { report, clock } = snapshot;
  if (before && (before.report.pid !== report.pid || clock < before.clock)) {
    [before, history_] = [null, new History()];
  }
  const seconds = before ? clock - before.clock : 0;
  // A snapshot out of turn, which another viewer has caused, is too close to the one before.
  if (before && seconds < 0.5) return null;
  const bounds = report.route_buckets;
  const earlier = new Map((before?.report.routes ?? []).map((route) => [route.route, route]));
  const routes = new Map();
  for (const route of before ? report.routes : []) {
    const old = earlier.get(route.route);
    const count = increase(route.requests, old?.requests ?? 0);
    const duration = histogramIncrease(route.duration, old?.duration);
    routes.set(route.route, { count, rate: count / seconds, duration });
  }
  const oldWorkers = new Map((before?.report.workers ?? []).map((worker) => [worker.pid, worker]));
  const computes = new Map();
  for (const worker of report.workers) {
    const old = oldWorkers.get(worker.pid);
    if (old && worker.r_cpu_ms != null) {
      // On a busy machine, even a process that computes all the time gets only a part of a processor.
      computes.set(worker.pid, (worker.r_cpu_ms - old.r_cpu_ms) / 1000 / seconds >= 0.1);
    }
  }
  const total = [...routes.values()].reduce((sum, { count }) => sum + count, 0);
  const sample = {
    at: clock, seconds, routes, computes, count: total, rate: before ? total / seconds : null,
    flushes: before ? increase(report.shiny.flushes, before.report.shiny.flushes) / seconds : null,
    pageBytes: before ? increase(report.shiny.page_bytes, before.report.shiny.page_bytes) / seconds : null,
    busy: new Map(report.workers.filter(({ busy_ratio }) => busy_ratio != null).map(({ slot, busy_ratio }) => [slot, busy_ratio])),
  };
  before = snapshot;
  if (sample.rate != null) history_.add(sample, bounds);
  return sample;
}

// ---- header and tiles ----

const stateClass = {
  ready: "good", serving: "good", starting: "warn", warming: "warn", draining: "warn", stopping: "warn", backing_off: "bad", suspended: "bad", spare: "",
};
const stateName = (state) => state.replaceAll("_", " ");

function showHeader({ report, actions, at }) {
  const name = report.target.split("/").filter(Boolean).pop() ?? "Rookery";
  setText(byId("app"), name);
  document.title = `${name} – Rookery`;
  const reloading = report.reload.state === "running";
  setText(byId("state"), reloading ? "reloading" : stateName(report.state));
  setClass(byId("state"), `badge ${reloading ? "warn" : stateClass[report.state] ?? ""}`);
  setText(byId("about"), [report.target, report.address, `Rookery ${report.version}`, report.started && `up ${formatTime(at - report.started)}`].filter(Boolean).join(" · "));
  byId("actions").hidden = actions.length === 0;
  for (const button of document.querySelectorAll("[data-action]")) {
    button.hidden = !actions.includes(button.dataset.action);
  }
  const failed = report.reload.last_error;
  byId("notice").hidden = !failed;
  if (failed) setText(byId("notice"), `The last reload failed: ${failed}`);
}

/** Shows the running profile, or offers the last one for download. */
function showProfile({ profile }) {
  const isShown = profile != null && profile.state !== "none";
  byId("profile").hidden = !isShown;
  if (!isShown) return;
  const [text, link] = byId("profile").children;
  link.hidden = profile.state !== "finished";
  if (profile.state === "running") {
    const left = Math.ceil(profile.seconds - profile.elapsed);
    setText(text, left > 0 ? `R is being profiled for ${left} s more.` : "The profile is being written.");
    return;
  }
  const { samples, routes } = profile.summary;
  const problems = profile.workers.filter(({ problem }) => problem).map(({ slot, problem }) => `Worker ${slot} ${problem}.`);
  const most = routes.filter(({ route }) => route).slice(0, 3).map(({ route, seconds }) => `${route} ${formatTime(seconds)}`);
  setText(text, [`The profile has ${formatCount(samples)} samples of R${most.length ? `: ${most.join(", ")}` : ""}.`, ...problems].join(" "));
  link.setAttribute("href", `/live/profile/file?number=${profile.number}`);
  link.setAttribute("download", `rookery-profile-${profile.number}.out`);
}

function showTiles({ report }, sample) {
  const workers = report.workers.filter(({ pid }) => pid);
  const sum = (of) => workers.reduce((total, worker) => total + (of(worker) ?? 0), 0);
  const behind = sum((worker) => worker.waiting_for_r) + sum((worker) => worker.queue?.length);
  const waiting = report.queue.length + (report.queue.oldest_ms == null ? 0 : behind);
  const oldest = Math.max(report.queue.oldest_ms ?? 0, ...workers.map(({ queue }) => queue?.oldest_ms ?? 0)) / 1000;
  const all = sample?.latency;
  const failures = report.routes.reduce((total, route) => total + route.errors, 0);
  const busy = workers.filter(({ busy_ratio }) => busy_ratio != null);
  const share = busy.length ? busy.reduce((total, { busy_ratio }) => total + busy_ratio, 0) / busy.length : null;
  const ready = workers.filter(({ state }) => state === "ready").length;
  const wanted = report.wanted.workers;
  const tiles = [
    ["Requests", formatRate(sample?.smoothRate), "per second", `${formatCount(report.routes.reduce((total, { requests }) => total + requests, 0))} in all`],
    ["Latency", all?.count ? formatTime(quantile(all, report.route_buckets, 0.95)) : "–", "p95", all?.count ? `mean ${formatTime(mean(all))}` : "no request now"],
    ["Queued", formatCount(waiting), "", waiting && oldest > 0 ? `the oldest for ${formatTime(oldest)}` : `limit ${formatCount(report.queue.limit)}`],
    ["R busy", formatPercent(share), "", `${ready} of ${wanted} ready`],
    ["Connections", formatCount(report.connections), "", "open"],
    ["Sessions", formatCount(sum(({ sessions }) => sessions)), "", "open WebSockets"],
    ["Streams", formatCount(sum(({ streams }) => streams)), "", "open bodies"],
    ["Errors", formatCount(failures), "", "with status 5xx"],
  ];
  syncChildren(
    byId("summary"), tiles, ([name]) => name,
    ([name]) => element("div", {}, element("dt", {}, name), element("dd", {}, element("span", {}), " ", element("small", {})), element("dd", { class: "note" })),
    (tile, [, value, unit, note]) => {
      setText(tile.children[1].firstChild, value);
      setText(tile.children[1].lastChild, unit);
      setText(tile.children[2], note);
    },
  );
}

// ---- R processes ----

function exitText({ reason, code, signal, at }, now) {
  const how = signal != null ? `signal ${signal}` : code != null ? `status ${code}` : "";
  return `The previous process ended ${formatTime(now - at)} ago: ${stateName(reason)}${how ? ` (${how})` : ""}`;
}

function doing(worker, computes) {
  if (!worker.pid) return { mark: "bad", label: "ended", what: worker.starts_in_ms != null ? "starts again in" : "", seconds: worker.starts_in_ms };
  const seconds = worker.r_state_ms;
  if (worker.r_state === "idle") return { mark: "good", label: "idle", what: "waits for requests" };
  if (worker.r_state === "starting") return { mark: "warn", label: "starting", what: "loads the app", seconds };
  const does = computes.get(worker.pid);
  const label = does == null || seconds < 1000 ? "busy" : does ? "computing" : "waiting";
  return { mark: seconds > 10000 ? "bad" : "warn", label, what: worker.route ?? "", isRoute: true, seconds };
}

function makeCard() {
  const facts = ["queued", "in progress", "sessions", "streams", "requests", "memory", "CPU", "restarts", "busy"];
  return element(
    "li", { class: "card" },
    element("div", { class: "head" }, element("b", {}), element("span", { class: "badge" }), element("span", { class: "muted" })),
    element("div", { class: "doing" }, element("span", { class: "badge" }), element("span", { class: "what mono" }), element("span", { class: "time" })),
    element("p", { class: "stack mono muted", hidden: "" }),
    element("meter", { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0 }),
    element("dl", { class: "facts" }, ...facts.map((name) => element("div", {}, element("dt", {}, name), element("dd", {})))),
    element("p", { class: "foot", hidden: "" }),
  );
}

function showWorkers({ report, at }, sample) {
  const computes = sample?.computes ?? new Map();
  const only = report.workers.length === 1 && report.wanted.workers <= 1;
  const workers = [...report.workers].sort((a, b) => a.slot - b.slot || (a.pid ?? 0) - (b.pid ?? 0));
  syncChildren(byId("workers"), workers, ({ slot, pid }) => `${slot} ${pid}`, makeCard, (card, worker) => {
    const [head, does, stack, meter, facts, foot] = card.children;
    setText(head.children[0], only ? "R process" : `Worker ${worker.slot}`);
    setText(head.children[1], stateName(worker.state));
    setClass(head.children[1], `badge ${stateClass[worker.state] ?? ""}`);
    setText(head.children[2], worker.pid ? `pid ${worker.pid} · up ${formatTime(at - worker.started)}` : "no process");
    const { mark, label, what, isRoute, seconds } = doing(worker, computes);
    setText(does.children[0], label);
    setClass(does.children[0], `badge ${mark === "good" ? "" : mark}${label === "computing" ? " busy-mark" : ""}`);
    setText(does.children[1], what);
    setClass(does.children[1], isRoute ? "what mono" : "what muted");
    does.children[1].title = what;
    setText(does.children[2], seconds == null ? "" : formatTime(seconds / 1000));
    stack.hidden = !worker.stack;
    if (worker.stack) {
      setText(stack, `in ${worker.stack.calls} (${formatAgo(worker.stack.ago_ms / 1000)})`);
      stack.title = stack.textContent;
    }
    const ratio = worker.busy_ratio ?? 0;
    if (meter.value !== ratio) meter.value = ratio;
    meter.title = `R busy: ${formatPercent(ratio)}`;
    const waiting = (worker.waiting_for_r ?? 0) + (worker.queue?.length ?? 0);
    const values = [
      formatCount(waiting), formatCount(worker.in_flight), formatCount(worker.sessions), formatCount(worker.streams), formatCount(worker.requests),
      formatBytes(worker.memory), formatTime(worker.cpu_s), formatCount(worker.restarts ?? 0), formatPercent(worker.busy_ratio),
    ];
    values.forEach((value, index) => setText(facts.children[index].lastChild, value));
    foot.hidden = !worker.last_exit;
    if (worker.last_exit) setText(foot, exitText(worker.last_exit, at));
  });
}

// ---- routes, errors, certificates ----

function showRoutes({ report }, sample) {
  const rate = (route) => sample?.routes.get(route.route)?.rate ?? 0;
  const sorted = [...report.routes].sort((a, b) => b.requests - a.requests);
  byId("no-routes").hidden = sorted.length > 0;
  byId("routes").parentElement.hidden = sorted.length === 0;
  syncChildren(
    byId("routes"), sorted, ({ route }) => route,
    ({ route }) => element("tr", {}, element("td", { title: route }, element("span", { class: "swatch" }), element("span", { class: "mono" }, route)), ...Array.from({ length: 7 }, () => element("td", {}))),
    (row, route) => {
      setClass(row.firstChild.firstChild, `swatch s${history_.colours.get(route.route) ?? 6}`);
      const values = [
        formatRate(rate(route)), formatTime(mean(route.duration)), formatTime(quantile(route.duration, report.route_buckets, 0.95)),
        formatTime(mean(route.queue)), formatTime(mean(route.r)), formatCount(route.requests), formatCount(route.errors),
      ];
      values.forEach((value, index) => setText(row.children[index + 1], value));
    },
  );
}

/** Shows the outputs of Shiny, those that have taken most time first. */
function showOutputs({ report }) {
  const sorted = [...(report.outputs ?? [])].sort((a, b) => b.r.sum - a.r.sum);
  byId("outputs-section").hidden = sorted.length === 0;
  syncChildren(
    byId("outputs"), sorted, ({ output }) => output,
    ({ output }) => element("tr", {}, element("td", { title: output }, element("span", { class: "mono" }, output)), ...Array.from({ length: 4 }, () => element("td", {}))),
    (row, { r }) => {
      const values = [formatTime(mean(r)), formatTime(quantile(r, report.route_buckets, 0.95)), formatTime(r.sum), formatCount(r.count)];
      values.forEach((value, index) => setText(row.children[index + 1], value));
    },
  );
}

/** Shows the sessions of Shiny, those for which it has computed for longest first. */
function showSessions({ report }, sample) {
  const { idle, computing, expected, flushes, sessions } = report.shiny;
  byId("sessions-section").hidden = idle + computing + expected + flushes === 0;
  setText(byId("sessions-about"), [
    `${formatCount(computing)} computing`, `${formatCount(idle)} idle`, `${formatCount(expected)} expected`,
    `${formatRate(sample.flushes)} flushes per second`, `${formatBytes(sample.pageBytes)} per second to pages`,
  ].join(" · "));
  syncChildren(
    byId("sessions"), sessions, ({ id }) => id,
    ({ id }) => element("tr", {}, element("td", {}, element("span", { class: "mono" }, `${id}…`)), ...Array.from({ length: 4 }, () => element("td", {}))),
    (row, { computes, computes_ms: since, opened_ms: opened, page_bytes: bytes }) => {
      const values = [computes ?? "–", since == null ? "–" : formatTime(since / 1000), formatBytes(bytes), formatTime(opened / 1000)];
      values.forEach((value, index) => setText(row.children[index + 1], value));
      row.children[1].title = values[0];
    },
  );
}

function showErrors() {
  byId("no-errors").hidden = errors.length > 0;
  const now = latest?.at ?? 0;
  const seen = new Map();
  syncChildren(
    byId("errors"), errors,
    ({ at, request_id: id, pid }) => { const key = `${at} ${id} ${pid}`; const count = seen.get(key) ?? 0; seen.set(key, count + 1); return `${key} ${count}`; },
    (error) => element("li", {}, element(
      "details", {},
      element(
        "summary", {}, element("span", { class: "mark" }), element("span", { class: "message" }, error.message || "an error without a message"),
        element("span", { class: "when", title: formatClock(error.at) }), element("span", { class: "where mono" }, error.route || error.label),
      ),
      element(
        "div", { class: "detail" },
        element("p", {}, [error.label, `worker ${error.slot}`, `pid ${error.pid}`, formatClock(error.at), error.request_id && `request ${error.request_id}`].filter(Boolean).join(" · ")),
        element("pre", { class: "mono", tabindex: "0", "aria-label": "Traceback" }, error.trace || "There is no traceback."),
      ),
    )),
    (item, error) => setText(item.querySelector(".when"), formatAgo(now - error.at)),
  );
}

function showCertificates({ certificates, at }) {
  byId("no-certificates").hidden = certificates.length > 0;
  syncChildren(
    byId("certificates"), certificates, ({ hosts, ends }) => `${hosts} ${ends}`,
    ({ hosts, ends }) => element("li", {}, element("span", { class: "hosts" }, hosts.join(", ") || "no host"), element("span", { class: "muted" }, `expires on ${formatDate(ends)}`), element("span", { class: "badge" })),
    (item, { ends }) => {
      const days = Math.floor((ends - at) / 86400);
      setText(item.lastChild, days < 0 ? "expired" : days === 1 ? "1 day left" : `${formatCount(days)} days left`);
      setClass(item.lastChild, `badge ${days < 3 ? "bad" : days < 14 ? "warn" : "good"}`);
    },
  );
}

// ---- events ----

function show(snapshot) {
  latest = snapshot;
  const sample = measure(snapshot);
  if (isPaused) return;
  showHeader(snapshot);
  showProfile(snapshot);
  if (sample) {
    const times = history_.times;
    const { rates, latencies } = history_.routeSeries();
    showTiles(snapshot, sample);
    showRoutes(snapshot, sample);
    showOutputs(snapshot);
    showSessions(snapshot, sample);
    if (times.length > 0) {
      charts.rate.show(times, rates);
      charts.latency.show(times, latencies);
      charts.busy.show(times, history_.busySeries());
    }
  }
  showWorkers(snapshot, sample ?? history_.samples[history_.samples.length - 1]);
  showErrors();
  showCertificates(snapshot);
}

/** The milliseconds without an event after which the connection counts as broken. The server sends an event every second. */
const SILENCE = 5000;
/** The problem of the connection, or null. */
let trouble = "connecting";
let timer = null;

function showConnection() {
  setText(byId("connection"), trouble ?? (isPaused ? "paused" : "live"));
  setClass(byId("connection"), `connection ${trouble ? "off" : "on"}`);
}

function setTrouble(text) {
  trouble = text;
  showConnection();
}

function connect() {
  const source = new EventSource("/live/events");
  // A stream reports no error while the server hangs or the network is broken, even before the stream
  // opens.
  const watch = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      setTrouble("no connection");
      source.close();
      timer = setTimeout(connect, 1000);
    }, SILENCE);
  };
  const onEvent = () => {
    setTrouble(null);
    watch();
  };
  source.addEventListener("open", onEvent);
  source.addEventListener("snapshot", (event) => { onEvent(); show(JSON.parse(event.data)); });
  source.addEventListener("history", (event) => {
    [before, history_] = [null, new History()];
    history_.load(JSON.parse(event.data));
  });
  source.addEventListener("errors", (event) => { errors = JSON.parse(event.data); });
  source.addEventListener("error", async () => {
    setTrouble("no connection");
    // The browser reconnects by itself unless the server has refused the stream.
    if (source.readyState !== EventSource.CLOSED) {
      watch();
      return;
    }
    clearTimeout(timer);
    const status = await fetch("/live/events", { method: "HEAD", signal: AbortSignal.timeout(SILENCE) })
      .then((response) => response.status, () => 0);
    if (status === 403) {
      setTrouble("no access");
      byId("notice").hidden = false;
      setText(byId("notice"), "The server has been restarted and has a new token. Open the URL that it has written at its start.");
      return;
    }
    timer = setTimeout(connect, 3000);
  });
  watch();
}

// ---- actions and keys ----

const questions = {
  reload: ["Replace all R processes by new ones that read the app again?", "Reload"],
  "remove-worker": ["End one worker, after it has finished its requests?", "One less"],
};

/** The action that the open dialog asks about. */
let asked = null;

/** Performs an action, after a question if it ends R processes. */
function perform(action) {
  if (byId("actions").hidden || document.querySelector(`[data-action="${action}"]`).hidden) return;
  if (!questions[action]) {
    send(action);
    return;
  }
  const [question, answer] = questions[action];
  setText(byId("confirm-text"), question);
  setText(byId("confirm-ok"), answer);
  asked = action;
  byId("confirm").returnValue = "cancel";
  byId("confirm").showModal();
  byId("confirm-ok").focus();
}

byId("confirm").addEventListener("close", () => {
  // The event arrives later than the end of the dialog, which may have been opened again.
  if (byId("confirm").open) return;
  if (byId("confirm").returnValue === "ok" && asked) send(asked);
  asked = null;
});

async function send(action) {
  const button = document.querySelector(`[data-action="${action}"]`);
  if (button.disabled) return;
  button.disabled = true;
  const [status, why] = await fetch(`/live/actions/${action}`, { method: "POST" })
    .then(async (response) => [response.status, await response.text()], () => [0, ""]);
  setTimeout(() => { button.disabled = false; }, 600);
  byId("refusal").hidden = status === 202;
  if (status !== 202) {
    setText(byId("refusal-text"), status === 0
      ? `â${button.textContent}â was not done. There is no connection to the server.`
      : `â${button.textContent}â was not done. The server has refused it with status ${status}${status === 409 ? `: ${why.trim()}` : "."}`);
  }
}

byId("refusal-ok").addEventListener("click", () => { byId("refusal").hidden = true; });

function togglePause() {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  setText(byId("pause"), isPaused ? "Continue" : "Pause");
  showConnection();
  if (!isPaused && latest) show(latest);
}

function goTo(id) {
  const heading = byId(id);
  heading.tabIndex = -1;
  heading.focus();
  heading.scrollIntoView({ block: "start" });
}

const keys = {
  p: togglePause,
  r: () => perform("reload"),
  o: () => perform("profile"),
  "+": () => perform("add-worker"),
  "-": () => perform("remove-worker"),
  w: () => goTo("workers-title"),
  e: () => goTo("errors-title"),
  "?": () => byId("keys").showModal(),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});
for (const button of document.querySelectorAll("[data-action]")) {
  button.addEventListener("click", () => perform(button.dataset.action));
}
byId("pause").addEventListener("click", togglePause);
byId("help").addEventListener("click", () => byId("keys").showModal());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of Object.values(charts)) chart.rebuild();
});
connect();
