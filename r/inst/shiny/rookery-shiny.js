// What a page of Shiny does after the R process of its session has ended: it reconnects, or shows a
// dialog with a button that reloads the page. rookery adds this script to the page (R/serve-shiny.R).
//
// Shiny's client opens a new session with the inputs of the old one if the app has called
// session$allowReconnect(TRUE) and the socket has a field `allowReconnect` that is true. A browser's
// WebSocket does not have this field, so this script adds it. With several workers it also adds the
// id of the worker that made the page to the URL of the WebSocket, for browsers without cookies.
(function () {
  'use strict';

  // data-reconnect: app (if the app allows it), always (unless the app forbids it), never.
  // data-worker: the id of the worker that made this page; missing with a single R process.
  const { reconnect, worker } = document.currentScript.dataset;

  // A clean close is final, as with Shiny Server, because the app has closed the session. Not final are a
  // lost connection, a server that goes away (1001), restarts (1012) or is overloaded (1013), and the
  // codes of Shiny Server.
  const isFinal = ({ wasClean, code }) => wasClean && ![1001, 1012, 1013].includes(code) && !(code >= 4700 && code < 4800);

  let isFirst = true;

  // Opens a WebSocket at the URL that Shiny's own client would use.
  function open() {
    const url = new URL(window.location.href);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    url.pathname = `${url.pathname.replace(/\/$/, '')}/websocket/`;
    url.hash = '';
    // The first session uses the worker that made the page. Later ones use any, because that worker may
    // be the one that has ended.
    url.search = worker === undefined ? '' : `?w=${isFirst ? worker : ''}`;
    const socket = new WebSocket(url.href);
    socket.binaryType = 'arraybuffer';
    return socket;
  }

  // Resets the progress state of the outputs of the ended session. Since 1.10, Shiny keeps a state for
  // each output and refuses messages that do not match it. Until
  // https://github.com/rstudio/shiny/pull/4425 it also kept the state for the next session, in which
  // all outputs start again, so that the page dropped the first value of each output.
  const forgetProgress = () => window.Shiny.shinyapp?.$outputProgress?.outputStates?.clear?.();

  // A new session gets the inputs of the old one. An observer of a button would run again for the last
  // click, and so would one of an event that the page has sent. Their values therefore become those of a
  // new page. The button itself keeps its count, so that the next click is a change.
  const events = new Set();

  function forgetEvents() {
    const values = window.Shiny.shinyapp?.$inputValues ?? {};
    for (const key of Object.keys(values)) {
      const [name, type] = key.split(':');
      if (type === 'shiny.action') values[key] = 0;
      else if (type === 'bslib.taskbutton' || events.has(name)) delete values[key];
    }
  }

  // ---- the dialog ----

  const texts = {
    en: ['The connection to the app was lost.', 'Reload'],
    de: ['Die Verbindung zur App wurde unterbrochen.', 'Neu laden'],
    es: ['Se ha perdido la conexión con la aplicación.', 'Recargar'],
    fr: ['La connexion à l’application a été perdue.', 'Recharger'],
    it: ['La connessione all’applicazione è stata interrotta.', 'Ricarica'],
    ja: ['アプリとの接続が切れました。', '再読み込み'],
    nl: ['De verbinding met de app is verbroken.', 'Opnieuw laden'],
    pl: ['Utracono połączenie z aplikacją.', 'Załaduj ponownie'],
    pt: ['A ligação à aplicação foi perdida.', 'Recarregar'],
    zh: ['与应用的连接已断开。', '重新加载'],
  };

  // Time for a page that is being left, which also loses its connection.
  const dialogDelay = 300;

  let isLeaving = false;
  window.addEventListener('pagehide', () => { isLeaving = true; });
  window.addEventListener('pageshow', () => { isLeaving = false; });

  // An app may hide Shiny's overlay because it shows a message of its own.
  function isLost() {
    const overlay = document.getElementById('shiny-disconnected-overlay');
    return overlay && getComputedStyle(overlay).display !== 'none'
      && !document.getElementById('shiny-notification-reconnect');
  }

  // Styles are set by properties, which a Content-Security-Policy allows.
  function showDialog() {
    if (isLeaving || !isLost() || document.getElementById('rookery-disconnected')) return;
    const lang = (document.documentElement.lang || navigator.language || 'en').toLowerCase().split('-')[0];
    const [message, reload] = texts[lang] ?? texts.en;
    const dialog = document.createElement('dialog');
    dialog.id = 'rookery-disconnected';
    dialog.setAttribute('role', 'alertdialog');
    dialog.setAttribute('aria-label', message);
    dialog.lang = texts[lang] ? lang : 'en';
    Object.assign(dialog.style, {
      border: '0', borderRadius: '10px', padding: '1.5rem 2rem', maxWidth: '24rem', textAlign: 'center',
      font: '16px/1.5 system-ui, sans-serif', colorScheme: 'light dark', background: 'Canvas',
      color: 'CanvasText', boxShadow: '0 8px 40px rgba(0, 0, 0, .35)',
    });
    const text = document.createElement('p');
    text.textContent = message;
    text.style.margin = '0 0 1rem';
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = reload;
    Object.assign(button.style, {
      border: '0', borderRadius: '6px', padding: '.5rem 1.4rem', font: 'inherit', color: '#fff',
      background: '#0a58ca', cursor: 'pointer',
    });
    button.addEventListener('click', () => window.location.reload());
    dialog.append(text, button);
    document.body.append(dialog);
    // Without the dialog, which Escape closes, the page can be read.
    dialog.showModal();
    button.focus();
  }

  const hideDialog = () => document.getElementById('rookery-disconnected')?.remove();

  // In development, the page reloads by itself.
  const isDevelopment = () => document.querySelector('script[src*="__rookery__/reload.js"]') !== null;

  function install() {
    const { Shiny } = window;
    if (!Shiny) return;
    const others = Shiny.createSocket;
    window.jQuery?.(document).on('shiny:inputchanged', ({ name, priority }) => {
      if (priority === 'event') events.add(name);
    });
    Shiny.createSocket = () => {
      const socket = others ? others() : open();
      if (reconnect === 'always' && isFirst && Shiny.shinyapp?.$allowReconnect === false) {
        // The app may change this.
        Shiny.shinyapp.$allowReconnect = true;
      }
      if (!isFirst) {
        forgetProgress();
        if (reconnect === 'always') forgetEvents();
      }
      isFirst = false;
      // Also set before the WebSocket has opened, because a server that is starting refuses it.
      socket.allowReconnect = reconnect !== 'never';
      socket.addEventListener('open', hideDialog);
      socket.addEventListener('close', (event) => {
        if (isFinal(event)) socket.allowReconnect = false;
        if (!isDevelopment()) setTimeout(showDialog, dialogDelay);
      });
      return socket;
    };
  }

  if (window.Shiny) install();
  else document.addEventListener('DOMContentLoaded', install);
}());
