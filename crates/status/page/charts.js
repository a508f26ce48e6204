// The moving charts: the history of the last ten minutes, drawn by uPlot.

/** The number of seconds that the charts show. */
const SPAN = 600;
/** The number of routes with a line of their own. The others are one line. */
const LINES = 6;
/** The number of seconds over which latencies are computed. */
const WINDOW = 10;

const cssValue = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A chart of several series by time, with a legend that shows the values under the pointer. */
class Chart {
  /** `top` is the smallest value at the top of the chart, and `step` the smallest step of its scale. */
  constructor(id, format, top, step) {
    this.place = document.getElementById(id);
    this.legend = document.getElementById(`${id}-legend`);
    this.format = format;
    this.top = top;
    this.steps = [1, 2, 5].flatMap((digit) => Array.from({ length: 10 }, (_, power) => digit * step * 10 ** power)).sort((a, b) => a - b);
    this.names = [];
    this.plot = null;
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (this.plot && width > 0) this.plot.setSize({ width, height });
  }

  /** Draws the chart anew with the same data, for example in other colours. */
  rebuild() {
    if (!this.plot) return;
    const { data } = this.plot;
    this.build(this.series);
    this.plot.setData(data);
  }

  /** Shows series, each with a name, a number of its colour, and as many values as there are times. */
  show(times, series) {
    const names = series.map(({ name, colour }) => `${colour} ${name}`);
    if (!this.plot || names.join("\n") !== this.names.join("\n")) {
      this.names = names;
      this.build(series);
    }
    this.series = series;
    this.plot.setData([times, ...series.map(({ values }) => values)]);
    this.describe();
  }

  build(series) {
    this.plot?.destroy();
    const axis = { stroke: cssValue("--muted"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: cssValue("--grid"), width: 1 } };
    const options = {
      width: Math.max(this.place.clientWidth, 50),
      height: this.place.clientHeight,
      padding: [8, 16, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { setScale: false }, sync: { key: "time" }, points: { size: 6 } },
      scales: {
        x: { range: (plot) => { const times = plot.data[0]; const end = times[times.length - 1] ?? 0; return [end - SPAN, end]; } },
        y: { range: (plot, low, high) => [0, Math.max(this.top, (high ?? 0) * 1.15)] },
      },
      axes: [
        { ...axis, space: 70, size: 26, gap: 8, values: (plot, splits) => { const end = plot.scales.x.max; return splits.map((at) => { const ago = Math.round(end - at); return ago <= 0 ? "now" : ago % 60 === 0 ? `−${ago / 60} min` : `−${ago} s`; }); }, splits: (plot, at, low, high) => { const step = plot.width < 300 ? 240 : 120; const all = []; for (let time = high; time >= low; time -= step) all.unshift(time); return all; } },
        { ...axis, space: 34, size: 52, incrs: this.steps, values: (plot, splits) => splits.map((value) => this.format(value)) },
      ],
      series: [{}, ...series.map(({ name, colour }, at) => ({
        label: name, stroke: cssValue(`--series-${colour}`), width: 1.5, points: { show: false }, spanGaps: true,
        fill: series.length === 1 && at === 0 ? `${cssValue(`--series-${colour}`)}22` : undefined,
      }))],
      hooks: { setCursor: [() => this.describe()] },
    };
    this.plot = new uPlot(options, [[], ...series.map(() => [])], this.place);
  }

  /** Writes the legend, with the values under the pointer or else the latest ones. */
  describe() {
    const times = this.plot.data[0];
    const at = this.plot.cursor.idx ?? times.length - 1;
    syncChildren(
      this.legend, this.series, ({ name }) => name,
      ({ name, colour }) => element("li", {}, element("span", { class: `swatch s${colour}` }), element("span", { class: "name", title: name }, name), element("b", {})),
      (item, { values, colour }) => {
        setClass(item.firstChild, `swatch s${colour}`);
        setText(item.lastChild, this.format(values[at]));
      },
    );
  }
}

/** The samples of the last ten minutes. A sample has the time, and the figures of each route and R process. */
class History {
  constructor() {
    this.samples = [];
    this.colours = new Map();
  }

  /** Adds a sample, and the latencies of its routes within the last seconds. One second alone has too few requests. */
  add(sample, bounds) {
    this.samples.push(sample);
    while (this.samples[0].at < sample.at - SPAN) this.samples.shift();
    const recent = this.samples.filter(({ at }) => at > sample.at - WINDOW);
    for (const [name, route] of sample.routes) {
      const durations = recent.map(({ routes }) => routes.get(name)?.duration).filter(Boolean);
      route.p95 = quantile(histogramSum(durations), bounds, 0.95);
    }
    sample.latency = histogramSum(recent.flatMap(({ routes }) => [...routes.values()].map(({ duration }) => duration).filter(Boolean)));
    const counted = recent.filter(({ seconds }) => seconds > 0);
    sample.smoothRate = counted.reduce((sum, { count }) => sum + count, 0) / counted.reduce((sum, { seconds }) => sum + seconds, 0);
  }

  /** Takes the samples that the server has kept, which have no durations but their 95th percentile. */
  load(samples) {
    this.samples = samples.map(({ at, seconds, count, routes, busy }) => ({
      at, seconds, count, rate: count / seconds, computes: new Map(), busy: new Map(busy),
      routes: new Map(routes.map(([name, requests, p95]) => [name, { count: requests, rate: requests / seconds, duration: null, p95 }])),
    }));
  }

  get times() {
    return this.samples.map(({ at }) => at);
  }

  /** The routes with most requests in the samples, which have lines of their own. */
  leadingRoutes() {
    const counts = new Map();
    for (const { routes } of this.samples) {
      for (const [name, { count }] of routes) counts.set(name, (counts.get(name) ?? 0) + count);
    }
    const leading = [...counts].filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]).slice(0, LINES).map(([name]) => name);
    // A route keeps its colour while it leads.
    for (const name of this.colours.keys()) if (!leading.includes(name)) this.colours.delete(name);
    for (const name of leading) {
      if (this.colours.has(name)) continue;
      const used = new Set(this.colours.values());
      this.colours.set(name, [...Array(LINES).keys()].find((colour) => !used.has(colour)));
    }
    return leading.sort((a, b) => this.colours.get(a) - this.colours.get(b));
  }

  /** The series of the requests per second, and of the latencies. */
  routeSeries() {
    const leading = this.leadingRoutes();
    const of = (name, value) => this.samples.map(({ routes }) => { const route = routes.get(name); return route ? value(route) : null; });
    const rates = leading.map((name) => ({ name, colour: this.colours.get(name), values: of(name, ({ rate }) => rate).map((rate) => rate ?? 0) }));
    const latencies = leading.map((name) => ({ name, colour: this.colours.get(name), values: of(name, ({ p95 }) => p95) }));
    const others = this.samples.map(({ rate, routes }) => {
      const shown = leading.reduce((sum, name) => sum + (routes.get(name)?.rate ?? 0), 0);
      return Math.max(0, rate - shown);
    });
    if (leading.length === 0) rates.push({ name: "all requests", colour: 0, values: this.samples.map(({ rate }) => rate) });
    else if (this.samples.some(({ routes }) => routes.size > leading.length)) rates.push({ name: "other routes", colour: 6, values: others });
    if (latencies.length === 0) latencies.push({ name: "no request in the last minutes", colour: 6, values: this.samples.map(() => null) });
    return { rates, latencies };
  }

  /** The series of the share in which R was busy, of each R process if they are few. */
  busySeries() {
    const slots = [...new Set(this.samples.flatMap(({ busy }) => [...busy.keys()]))].sort((a, b) => a - b);
    if (slots.length > LINES) {
      const average = ({ busy }) => { const all = [...busy.values()]; return all.length ? all.reduce((a, b) => a + b, 0) / all.length : null; };
      return [{ name: `average of ${slots.length} R processes`, colour: 0, values: this.samples.map(average) }];
    }
    return slots.map((slot, at) => ({
      name: slots.length === 1 ? "R" : `worker ${slot}`, colour: at, values: this.samples.map(({ busy }) => busy.get(slot) ?? null),
    }));
  }
}
