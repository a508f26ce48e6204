"use strict";
// Formats of numbers and times, and arithmetic on the server's counters.

const numberFormat = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const formatCount = (value) => (value == null ? "–" : numberFormat.format(value));

/** A rate, with more digits if it is small. */
function formatRate(value) {
  if (value == null || !isFinite(value)) return "–";
  if (value < 10 && !Number.isInteger(value)) return value.toFixed(1);
  return formatCount(value);
}

/** A duration in seconds, in at most two units. */
function formatTime(seconds) {
  if (seconds == null || !isFinite(seconds)) return "–";
  if (seconds <= 0) return "0 s";
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor(whole / 60) % 60} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

/** How long ago something was, in whole seconds. */
const formatAgo = (seconds) => (seconds < 1 ? "now" : `${formatTime(Math.floor(seconds)).replace(".0 s", " s")} ago`);

function formatBytes(bytes) {
  if (bytes == null || !isFinite(bytes)) return "–";
  if (bytes < 1e6) return bytes < 1e3 ? `${Math.round(bytes)} B` : `${Math.round(bytes / 1e3)} kB`;
  return bytes < 1e9 ? `${Math.round(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

const formatPercent = (share) => (share == null || !isFinite(share) ? "–"
  : `${share >= 0.0005 && share < 0.1 ? (share * 100).toFixed(1) : Math.round(share * 100)} %`);

const formatClock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
const formatDate = (seconds) => new Date(seconds * 1000).toLocaleDateString(undefined, {
  year: "numeric", month: "long", day: "numeric",
});

/** The increase of a counter, which begins again at 0 when its process does. */
const increase = (now, before) => (before == null || now < before ? now : now - before);

/** The increase of a histogram with cumulative buckets. */
function histogramIncrease(now, before) {
  if (!before || now.count < before.count) return now;
  return {
    count: now.count - before.count,
    sum: now.sum - before.sum,
    buckets: now.buckets.map((bucket, at) => bucket - before.buckets[at]),
  };
}

/** The sum of histograms, or null if there are none. */
const histogramSum = (histograms) => histograms.reduce((sum, one) => (sum ? {
  count: sum.count + one.count,
  sum: sum.sum + one.sum,
  buckets: sum.buckets.map((bucket, at) => bucket + one.buckets[at]),
} : one), null);

const mean = (histogram) => (histogram && histogram.count > 0 ? histogram.sum / histogram.count : null);

/** The value below which a share of a histogram's observations lies, interpolated within a bucket. */
function quantile(histogram, bounds, share) {
  if (!histogram || !(histogram.count > 0)) return null;
  const rank = share * histogram.count;
  let [before, lower] = [0, 0];
  for (let at = 0; at < bounds.length; at++) {
    const until = histogram.buckets[at];
    if (until >= rank && until > before) {
      return lower + ((bounds[at] - lower) * (rank - before)) / (until - before);
    }
    [before, lower] = [until, bounds[at]];
  }
  return bounds[bounds.length - 1];
}

/** An element with classes, attributes and children. Text never becomes markup. */
function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Sets the text of an element, if it has changed. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets the classes of an element, if they have changed. */
function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

/**
 * Makes the children of `parent` those of `items`, in their order. A child is made once for each key and then
 * updated, so it keeps its focus, its selection and whether it is open.
 */
function syncChildren(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = old.get(name);
    if (child) old.delete(name);
    else {
      child = make(item);
      child.dataset.key = name;
    }
    update(child, item);
    if (child === next) next = child.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const child of old.values()) child.remove();
}
