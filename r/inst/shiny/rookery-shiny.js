// Lets a page of Shiny reconnect after the R process of its session has ended. rookery adds this
// script to the page (R/serve-shiny.R).
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

  function install() {
    const { Shiny } = window;
    if (!Shiny) return;
    const others = Shiny.createSocket;
    Shiny.createSocket = () => {
      const socket = others ? others() : open();
      if (reconnect === 'always' && isFirst && Shiny.shinyapp?.$allowReconnect === false) {
        // The app may change this.
        Shiny.shinyapp.$allowReconnect = true;
      }
      if (!isFirst) forgetProgress();
      isFirst = false;
      // Also set before the WebSocket has opened, because a server that is starting refuses it.
      socket.allowReconnect = reconnect !== 'never';
      socket.addEventListener('close', (event) => {
        if (isFinal(event)) socket.allowReconnect = false;
      });
      return socket;
    };
  }

  if (window.Shiny) install();
  else document.addEventListener('DOMContentLoaded', install);
}());
