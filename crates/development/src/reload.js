// Keeps a page up to date while its app is being developed. `rookery dev` adds this script to the pages
// of the app. A WebSocket tells the version of the app; the page reloads if that is not its own.
(function () {
  'use strict';

  const own = document.currentScript;
  const version = Number(own.dataset.version);
  const url = new URL('live', own.src);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';

  // ---- the inputs of a Shiny app ----

  // The values of inputs that the user has changed are kept in this tab, and set again after the page has
  // been reloaded. Values that the user has not touched come from the app, so that changes of defaults in
  // its source are visible. Passwords, files and the counts of buttons are not kept.
  const storage = `rookery-inputs:${location.pathname}`;
  const initial = new Map();
  const bound = new Map();
  let kept = {};

  function takeKept() {
    try {
      kept = JSON.parse(sessionStorage.getItem(storage)) || {};
      sessionStorage.removeItem(storage);
    } catch {
      kept = {};
    }
  }

  function isKept(element) {
    const { classList } = element;
    return element.id && element.type !== 'password' && element.type !== 'file'
      && !classList.contains('action-button') && !classList.contains('shiny-file-input');
  }

  // Returns the value in the form that receiveMessage() of the same binding accepts.
  function valueOf({ element, binding }) {
    const slider = window.jQuery(element).data('ionRangeSlider');
    if (slider) {
      // The values of date sliders are formatted for R, and the slider itself has numbers.
      const { from, to } = slider.result;
      return slider.options.type === 'double' ? [from, to] : from;
    }
    const value = binding.getValue(element);
    return element.classList.contains('shiny-date-range-input')
      ? { start: value[0], end: value[1] }
      : value;
  }

  const isEqual = (a, b) => JSON.stringify(a) === JSON.stringify(b);

  // Server-side choices may not have arrived, and an unknown choice would empty the input.
  function hasChoice(element, value) {
    if (element.tagName !== 'SELECT') return true;
    const values = Array.isArray(value) ? value : [value];
    const has = (one) => [...element.options].some((option) => option.value === one)
      || (element.selectize && one in element.selectize.options);
    return values.every(has);
  }

  function onBound(event) {
    const { target: element, binding, bindingType } = event;
    if (bindingType !== 'input' || !isKept(element)) return;
    try {
      const item = { element, binding };
      bound.set(element.id, item);
      initial.set(element.id, valueOf(item));
      if (!(element.id in kept)) return;
      const value = kept[element.id];
      delete kept[element.id];
      if (isEqual(value, initial.get(element.id)) || !hasChoice(element, value)) return;
      // After Shiny has finished binding, so that the change is sent to R.
      setTimeout(() => {
        try {
          binding.receiveMessage(element, { value });
        } catch {
          // A binding with messages of another form.
        }
      });
    } catch {
      // A binding that cannot be read yet.
    }
  }

  function keepInputs() {
    const values = {};
    for (const [id, item] of bound) {
      if (document.contains(item.element)) {
        try {
          const value = valueOf(item);
          if (!isEqual(value, initial.get(id))) values[id] = value;
        } catch {
          // Not kept.
        }
      }
    }
    try {
      if (Object.keys(values).length > 0) sessionStorage.setItem(storage, JSON.stringify(values));
    } catch {
      // No storage, or too many values.
    }
  }

  function watchInputs() {
    if (window.jQuery) window.jQuery(document).on('shiny:bound', onBound);
  }

  takeKept();
  if (window.jQuery) watchInputs();
  else document.addEventListener('DOMContentLoaded', watchInputs);

  // ---- changes ----

  let isReloading = false;

  function reload() {
    if (isReloading) return;
    isReloading = true;
    keepInputs();
    location.reload();
  }

  // Reloads the page if it is not of the app's version. A cache may send an old page again: then it is not
  // reloaded a second time for the same version.
  const reloaded = `rookery-reloaded:${location.pathname}`;

  function onVersion(current) {
    try {
      if (current === version) sessionStorage.removeItem(reloaded);
      else if (sessionStorage.getItem(reloaded) === String(current)) return;
      else sessionStorage.setItem(reloaded, String(current));
    } catch {
      // No storage.
    }
    if (current !== version) reload();
  }

  // Adds a parameter that the server ignores, so that the browser does not use its copy.
  function fresh(address) {
    const changed = new URL(address, document.baseURI);
    changed.searchParams.set('rookery-dev', String(Date.now()));
    return changed.href;
  }

  function isOneOf(address, names) {
    if (!address) return false;
    try {
      const { origin, pathname } = new URL(address, document.baseURI);
      const path = decodeURIComponent(pathname);
      return origin === location.origin && names.some((name) => path.endsWith(`/${name}`));
    } catch {
      // Not a valid URL.
      return false;
    }
  }

  function replaceStyleSheet(link) {
    const next = link.cloneNode();
    next.href = fresh(link.href);
    // The old one stays until the new one has been loaded, so that the page does not flash.
    const done = () => link.remove();
    next.addEventListener('load', done, { once: true });
    next.addEventListener('error', done, { once: true });
    link.after(next);
  }

  function replaceFiles(names) {
    const found = new Set();
    const note = (address) => names.filter((name) => isOneOf(address, [name])).forEach((name) => found.add(name));
    for (const link of document.querySelectorAll('link[rel~="stylesheet"]')) {
      if (isOneOf(link.href, names)) {
        note(link.href);
        replaceStyleSheet(link);
      }
    }
    for (const link of document.querySelectorAll('link[rel~="icon"]')) {
      if (isOneOf(link.href, names)) {
        note(link.href);
        link.href = fresh(link.href);
      }
    }
    for (const image of document.querySelectorAll('img[src], input[type="image"][src]')) {
      if (isOneOf(image.src, names)) {
        note(image.src);
        image.src = fresh(image.src);
      }
    }
    // A file that is used in another way, such as an image in a style sheet.
    if (found.size < names.length) reload();
  }

  // Shows that R starts. Styles are set by properties, which a Content-Security-Policy allows.
  let badge;

  function showBadge(text) {
    if (!badge) {
      badge = document.createElement('div');
      badge.setAttribute('role', 'status');
      Object.assign(badge.style, {
        position: 'fixed', right: '12px', bottom: '12px', zIndex: '2147483647', padding: '6px 12px',
        borderRadius: '6px', font: '13px system-ui, sans-serif', color: '#fff',
        background: 'rgba(28, 30, 33, .85)', pointerEvents: 'none',
      });
      document.body?.append(badge);
    }
    badge.textContent = text;
  }

  // ---- the WebSocket ----

  let delay = 100;

  function connect() {
    const socket = new WebSocket(url.href);
    // The server answers the first message with the version.
    socket.addEventListener('open', () => {
      delay = 100;
      socket.send('');
    });
    socket.addEventListener('message', ({ data }) => {
      const message = JSON.parse(data);
      if (message.version !== undefined) onVersion(message.version);
      if (message.styles) replaceFiles(message.styles);
      if (message.restarting) showBadge('Restarting R …');
    });
    socket.addEventListener('close', () => {
      if (isReloading) return;
      // The server may have been stopped, and started again after some time.
      setTimeout(connect, delay);
      delay = Math.min(delay * 2, 2000);
    });
  }

  connect();
}());
