// Keeps a page up to date while its app is being developed, and shows the errors of its Shiny session in
// an overlay. `rookery dev` adds this script to the pages of the app. A WebSocket tells the version of the
// app; the page reloads if that is not its own.
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
  // The values that wait for their input, or for the choices of their input.
  let kept = {};

  function takeKept() {
    try {
      kept = JSON.parse(sessionStorage.getItem(storage)) || {};
    } catch {
      kept = {};
    }
  }

  // Only a page with the inputs forgets the values, and not a page that shows an error instead. A reload
  // by the user then begins with the app's own values.
  function forgetKept() {
    try {
      sessionStorage.removeItem(storage);
    } catch {
      // No storage.
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

  // Sets a kept value again, if the input has it among its choices by now.
  function restore(id) {
    const { element, binding } = bound.get(id);
    const value = kept[id];
    if (isEqual(value, valueOf({ element, binding }))) {
      delete kept[id];
    } else if (hasChoice(element, value)) {
      delete kept[id];
      // After Shiny has finished binding, so that the change is sent to R.
      setTimeout(() => {
        try {
          binding.receiveMessage(element, { value });
        } catch {
          // A binding with messages of another form.
        }
      });
    }
  }

  function onBound(event) {
    const { target: element, binding, bindingType } = event;
    if (bindingType !== 'input') return;
    forgetKept();
    if (!isKept(element)) return;
    try {
      const item = { element, binding };
      bound.set(element.id, item);
      initial.set(element.id, valueOf(item));
      if (element.id in kept) restore(element.id);
    } catch {
      // A binding that cannot be read yet.
    }
  }

  // The app changes an input, for example its choices. A value that the app sets is not one of the user.
  function onUpdate(event) {
    const { id } = event.target;
    const item = bound.get(id);
    if (!item) return;
    const read = () => {
      try {
        return valueOf(item);
      } catch {
        return undefined;
      }
    };
    const before = read();
    setTimeout(() => {
      const after = read();
      if (!isEqual(before, after)) initial.set(id, after);
      if (id in kept) restore(id);
    });
  }

  function keepInputs() {
    const values = { ...kept };
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

  takeKept();

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

  // ---- errors of a Shiny session ----

  // The last errors of all sessions, because an error may arrive before the page has the id of its session.
  const maxErrors = 20;
  let errors = [];
  let overlay;

  function isOwn({ session }) {
    const own = window.Shiny?.shinyapp?.config?.sessionId;
    return typeof own === 'string' && own.startsWith(session);
  }

  function onError(error) {
    // An output that fails again and again, with the same inputs, does not open the overlay again.
    if (errors.some(({ session, page }) => session === error.session && page === error.page)) return;
    errors = [...errors, error].slice(-maxErrors);
    showErrors();
  }

  // Shows the errors of the own session over the page, until the developer closes them or the page reloads.
  function showErrors() {
    const open = errors.filter((error) => isOwn(error) && !error.isClosed);
    if (open.length === 0) return;
    if (!overlay) {
      overlay = createOverlay(() => errors.forEach((error) => {
        error.isClosed ||= isOwn(error);
      }));
    }
    overlay.show(open.map(({ page }) => page));
  }

  // Styles are set by properties, which a Content-Security-Policy allows. A frame keeps the styles of the
  // app and those of the error apart. The page in it allows no scripts.
  function createOverlay(onClose) {
    const dialog = document.createElement('dialog');
    const bar = document.createElement('div');
    const count = document.createElement('span');
    const frame = document.createElement('iframe');
    const font = '14px/1.4 system-ui, sans-serif';
    let pages = [];
    let at = 0;

    const turnTo = (index) => {
      at = Math.max(0, Math.min(index, pages.length - 1));
      count.textContent = pages.length === 1 ? 'Error in this session' : `Error ${at + 1} of ${pages.length} in this session`;
      previous.hidden = pages.length === 1;
      next.hidden = pages.length === 1;
      previous.disabled = at === 0;
      next.disabled = at === pages.length - 1;
      if (frame.srcdoc !== pages[at]) frame.srcdoc = pages[at];
    };
    const addButton = (label, onClick) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = label;
      Object.assign(button.style, {
        font, padding: '3px 12px', margin: '0', border: '1px solid #8a929b', borderRadius: '6px', color: 'inherit',
        background: 'transparent',
      });
      button.addEventListener('click', onClick);
      bar.append(button);
      return button;
    };

    bar.append(count);
    const previous = addButton('Previous', () => turnTo(at - 1));
    const next = addButton('Next', () => turnTo(at + 1));
    addButton('Close (Esc)', () => dialog.close()).autofocus = true;
    dialog.append(bar, frame);
    dialog.setAttribute('aria-label', 'Errors of the app');
    frame.title = 'The error';
    Object.assign(count.style, { flex: '1' });
    Object.assign(bar.style, {
      display: 'flex', gap: '8px', alignItems: 'center', padding: '6px 12px', font, color: '#fff', background: '#1c1e21',
    });
    Object.assign(frame.style, { display: 'block', width: '100%', height: 'calc(100% - 42px)', border: '0' });
    Object.assign(dialog.style, {
      boxSizing: 'border-box', width: 'calc(100vw - 32px)', height: 'calc(100vh - 32px)', maxWidth: 'none', maxHeight: 'none',
      margin: '16px', padding: '0', border: '0', borderRadius: '8px', overflow: 'hidden', background: '#fff',
    });
    // The app's own shortcuts do not get the keys.
    const onKey = (event) => {
      event.stopPropagation();
      if (event.key === 'Escape') dialog.close();
    };
    dialog.addEventListener('keydown', onKey);
    frame.addEventListener('load', () => frame.contentDocument?.addEventListener('keydown', onKey));
    dialog.addEventListener('close', () => {
      pages = [];
      onClose();
    });

    return {
      show(open) {
        const isNew = pages.length === 0;
        pages = open;
        turnTo(isNew ? 0 : at);
        if (!dialog.isConnected) document.body.append(dialog);
        if (!dialog.open) dialog.showModal();
      },
    };
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
      if (message.error) onError(message.error);
    });
    socket.addEventListener('close', () => {
      if (isReloading) return;
      // The server may have been stopped, and started again after some time.
      setTimeout(connect, delay);
      delay = Math.min(delay * 2, 2000);
    });
  }

  function watchShiny() {
    window.jQuery?.(document).on({
      'shiny:bound': onBound, 'shiny:updateinput': onUpdate, 'shiny:sessioninitialized': showErrors,
    });
  }

  if (window.jQuery) watchShiny();
  else document.addEventListener('DOMContentLoaded', watchShiny);
  connect();
}());
